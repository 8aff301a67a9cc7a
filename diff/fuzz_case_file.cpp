// libFuzzer entry: no bytes may crash the reader of case files, and what it accepts is written and
// read again byte for byte.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "diff/case_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardproof;
  const auto file = read_case({reinterpret_cast<const char*>(data), size});
  if (!file) {
    if (file.error().empty() || file.error().size() > 1000) std::abort();
    return 0;
  }
  const std::string text = to_text(*file);
  const auto again = read_case(text);
  if (!again || to_text(*again) != text) std::abort();
  return 0;
}
