// libFuzzer entry: no bytes may crash the reader of case files; what it accepts is written and read
// again byte for byte, and what was recorded can be judged and explained.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "diff/case_file.h"
#include "diff/explain.h"
#include "diff/unit_case.h"

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
  const auto* unit = std::get_if<UnitCase>(&file->content);
  if (unit != nullptr && file->recorded) {
    const UnitVerdict verdict =
        judge_recorded(*unit, file->recorded->written, file->recorded->contracts);
    if (explain(*unit, verdict).empty()) std::abort();
  }
  return 0;
}
