// The report of a sign-off as one HTML page for a reviewer: inline CSS and SVG, no script, no
// network, readable without colour and on paper. It is made from the JSON report alone, so that
// every number on the page stands in the JSON, which the digest seals.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace shardproof {

// Of what to_json(SignoffReport) gave.
std::string to_html(const nlohmann::json& report);

// Text as it may stand in an element or in a quoted attribute; control characters and bytes that
// are no UTF-8 become U+FFFD.
std::string escaped(const std::string& text);

}  // namespace shardproof
