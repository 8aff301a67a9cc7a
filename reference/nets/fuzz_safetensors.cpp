// libFuzzer entry: no bytes may crash the safetensors reader, and what it accepts takes no more
// numbers than the input has room for.
#include <cstdint>
#include <cstdlib>

#include "reference/nets/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tensors = shardproof::parse_safetensors(std::as_bytes(std::span(data, size)), "input");
  if (!tensors) {
    if (tensors.error().empty() || tensors.error().size() > 1000) std::abort();
    return 0;
  }
  for (const auto& [name, stored] : *tensors) {
    if (stored.tensor.values.size() != stored.tensor.shape.size()) std::abort();
    if (stored.tensor.values.size() * 2 > size) std::abort();
  }
  return 0;
}
