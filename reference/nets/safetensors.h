// Tensors in a safetensors file: 8 bytes of little-endian header length, a JSON header that gives
// each name a dtype, a shape and its byte range, then the numbers, without gaps. Format:
// https://huggingface.co/docs/safetensors/index#format A file is hostile until proved sound: every
// length is checked before memory is asked for.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reference/graph/tensor.h"
#include "reference/result.h"

namespace shardproof {

// A tensor with the dimensions the file states, at most four. The shape is
// [] -> 1x1x1x1, [C] -> 1xCx1x1, [a,b] -> 1x1xaxb, [a,b,c] -> 1xaxbxc, [a,b,c,d] -> as it stands.
struct StoredTensor {
  std::vector<std::size_t> dimensions;
  Tensor<float> tensor;
};

// By name, so a file is written in one order whatever order it was filled in.
using StoredTensors = std::map<std::string, StoredTensor>;

// A name from a file, in quotes and cut to fit one line of a message.
std::string quoted_name(std::string_view name);

// "[32,3,3,3]"
std::string dimensions_text(const std::vector<std::size_t>& dimensions);

// F32 as it stands; F16 and BF16 widened, which is exact; any other dtype is an error. Errors name
// the file and the tensor. A file holds at most 65,536 tensors and 2^28 numbers (1 GiB).
Result<StoredTensors> read_safetensors(const std::string& path);

// The same on bytes in memory; `file` is the name for errors.
Result<StoredTensors> parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

// Writes F32 under a temporary name in the same folder, then renames: a reader sees the old file or
// the whole new one. Throws std::invalid_argument where dimensions and values do not fit.
Result<std::monostate> write_safetensors(const std::string& path, const StoredTensors& tensors);

}  // namespace shardproof
