// The digest of a report: SHA-256 (FIPS 180-4) over the JSON's content, so that a changed number,
// or a changed verdict, shows. It proves that a file is whole, not who wrote it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "reference/result.h"

namespace shardproof {

// Of any bytes: 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

// Sets `digest` to the SHA-256 of the document's compact text, keys sorted, bytes that are no UTF-8
// as U+FFFD, without the field `digest` and without any field `seconds`.
void seal(nlohmann::json& document);

// The document as indented text. Bytes that are no UTF-8, as a path may have, become U+FFFD.
std::string to_file_text(const nlohmann::json& document);

// Whether the digest that a report carries is that of its content. An error where the text is no
// JSON object, names a field twice, has no digest, or is of a schema that this version does not
// know.
Result<bool> verify_digest(std::string_view json_text);

}  // namespace shardproof
