// libFuzzer entry: no bytes may crash the reader of programs; what it accepts prints to text that
// parses to the same program and prints alike, and compiles or is one short error, in both forms.
#include <cstdint>
#include <cstdlib>

#include "reference/slots/compile.h"
#include "reference/slots/text.h"

namespace {

void require(bool fact) {
  if (!fact) std::abort();
}

void require_error(const std::string& error) {
  require(error.rfind("f:", 0) == 0 && error.size() < 1000);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardproof;
  const auto parsed = parse_program("f", {reinterpret_cast<const char*>(data), size});
  if (!parsed) {
    require_error(parsed.error());
    return 0;
  }
  const std::string text = print(*parsed);
  const auto again = parse_program("f", text);
  require(again && *again == *parsed && print(*again) == text);

  const auto array = compile_array("f", *parsed);
  if (!array) require_error(array.error());
  const auto whole = compile_whole("f", *parsed);
  if (!whole) require_error(whole.error());
  return 0;
}
