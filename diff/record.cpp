// What a device does on a case, recorded (case_file.h).
#include <fmt/format.h>

#include "diff/case_file.h"
#include "diff/explain.h"

namespace shardproof {

Recorded record(const DeviceMaker& make, const UnitCase& c) {
  const UnitVerdict verdict = judge_unit_case(make, c);
  Recorded recorded;
  recorded.device = verdict.device;
  recorded.verdict = verdict.outcome();
  recorded.contracts = verdict.contracts;
  recorded.written = verdict.written;
  recorded.told = verdict.failure;
  const Comparison* wrong = verdict.first_wrong();
  if (wrong == nullptr) return recorded;
  if (recorded.told.empty()) recorded.told = describe(*wrong);
  const auto exact = exact_value(c, verdict, *wrong);
  const double expected = wrong->worst.expected;
  recorded.worst = {wrong->node, wrong->part, wrong->worst, exact ? exact->lower : expected,
                    exact ? exact->upper : expected};
  return recorded;
}

Recorded record(const DeviceMaker& make, const ProgramCase& c) {
  const ProgramResult result = judge_program_case(make, c);
  Recorded recorded;
  recorded.device = result.device;
  const auto wrong = first_wrong(result);
  switch (result.verdict()) {
    case SignoffResult::Verdict::agrees:
      recorded.verdict = Outcome::agrees;
      break;
    case SignoffResult::Verdict::disagrees:
      recorded.verdict = Outcome::wrong;
      break;
    case SignoffResult::Verdict::none:
      break;
  }
  if (!wrong) return recorded;
  recorded.told = describe(*wrong);
  if (wrong->slot.empty()) return recorded;  // a failure, or a write outside
  RecordedWorst worst;
  worst.node = wrong->claim;
  worst.part = wrong->slot;
  worst.difference = {wrong->rank, wrong->element, wrong->got, wrong->expected, wrong->bound, 0};
  worst.lower = worst.upper = wrong->expected;
  recorded.worst = worst;
  return recorded;
}

}  // namespace shardproof
