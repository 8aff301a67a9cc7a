#include "reference/slots/slot_run.h"

#include <stdexcept>
#include <string>

namespace shardproof {

// Compiled without jump tables (CMakeLists.txt): a program repeats the same few functions in the
// same order, and the branches that tell them apart are foreseen where an indirect jump is not.
template <class T>
std::vector<T> slot_run(std::vector<T> state, const Program& program,
                        const Arithmetic<T>& arithmetic) {
  if (state.size() < program.slots) {
    throw std::invalid_argument("slot_run: " + std::to_string(state.size()) + " values for " +
                                std::to_string(program.slots) + " slots");
  }
  std::vector<T> constants;
  constants.reserve(program.constants.size());
  for (const Rational& constant : program.constants) {
    constants.push_back(arithmetic.constant(constant));
  }
  T* const values = state.data();
  for (const Assignment& assignment : program.assignments) {
    const auto& reads = assignment.reads;
    T& target = values[assignment.target];
    if (assignment.function == ValueFunction::constant) {
      target = constants[reads[0]];
      continue;
    }
    with_operation(assignment.function, arithmetic, [&](auto takes, auto operation) {
      if constexpr (takes == 1) {
        target = operation(values[reads[0]]);
      } else if constexpr (takes == 2) {
        target = operation(values[reads[0]], values[reads[1]]);
      } else {
        target = operation(values[reads[0]], values[reads[1]], values[reads[2]]);
      }
    });
  }
  return state;
}

template std::vector<float> slot_run(std::vector<float>, const Program&, const Arithmetic<float>&);
template std::vector<double> slot_run(std::vector<double>, const Program&,
                                      const Arithmetic<double>&);
template std::vector<BFloat16> slot_run(std::vector<BFloat16>, const Program&,
                                        const Arithmetic<BFloat16>&);
template std::vector<Float16> slot_run(std::vector<Float16>, const Program&,
                                       const Arithmetic<Float16>&);
template std::vector<std::uint32_t> slot_run(std::vector<std::uint32_t>, const Program&,
                                             const Arithmetic<std::uint32_t>&);
template std::vector<Rational> slot_run(std::vector<Rational>, const Program&,
                                        const Arithmetic<Rational>&);
template std::vector<Term> slot_run(std::vector<Term>, const Program&, const Arithmetic<Term>&);
template std::vector<Interval<30>> slot_run(std::vector<Interval<30>>, const Program&,
                                            const Arithmetic<Interval<30>>&);
template std::vector<Interval<80>> slot_run(std::vector<Interval<80>>, const Program&,
                                            const Arithmetic<Interval<80>>&);

}  // namespace shardproof
