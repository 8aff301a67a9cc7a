// ProgramCase: a run of an optimizer's sharded step (spec §1) with numbers of its own, and how the
// device is scheduled: all that its verdict depends on, but for the device (agreement §6).
// Sign-off, checks and replays are judged by this one code path, in two verdicts: owned against
// replicated (A1), and device against reference (program_signoff.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/device.h"
#include "device/engine/owned_optimizer.h"
#include "diff/signoff.h"
#include "diff/unit_case.h"
#include "diff/verdict.h"
#include "reference/result.h"
#include "reference/slots/array_program.h"
#include "reference/slots/array_state.h"

namespace shardproof {

enum class OwnerMap { mod, blocks, greedy, table };

struct ProgramCase {
  std::string program;  // its text (text.h): over arrays, separable
  std::vector<ParameterShape> shapes;
  std::size_t ranks = 1;
  OwnerMap owners = OwnerMap::blocks;
  std::vector<Owner> table;  // of OwnerMap::table: of each coordinate, below `ranks`
  std::size_t steps = 1;
  OwnedOptimizerOptions options;
  // Of every slot of the compiled program. Parameter and state count; constants have their value,
  // the gradient and temporaries NaN, as with_fixed_values leaves them.
  ArrayState<float> start;
  // [step][rank][coordinate]; empty where the program has no gradient.
  std::vector<std::vector<std::vector<float>>> gradients;
  InputKind kind = InputKind::natural;
  Schedule schedule;
  std::string input;  // what its numbers are like, in words
};

// The first number of a claim that is wrong.
struct ProgramDisagreement {
  std::string claim, input;
  std::size_t step = 0;        // from 1
  std::size_t rank = 0;        // where it was found
  std::optional<Owner> owner;  // of its coordinate
  std::string slot;            // "m[1][3]": element 3 of parameter 1
  double got = 0, expected = 0, bound = 0;
  std::size_t line = 0;  // of the assignment that wrote the slot last; 0: none did
  ArraySlot place;       // the slot and its element, among those of all parameters
  std::size_t element = 0;
};

// "CLAIM: m[1][3] after step 2 on rank 1 got 0.5, exact 0.25, bound 0"
std::string describe(const ProgramDisagreement& disagreement);

// A small case, drawn from a seed, in which a claim fails that failed in the whole one.
struct SmallestCase {
  std::vector<ParameterShape> shapes;
  std::size_t ranks = 0, steps = 0;
  std::uint64_t seed = 0;
  ProgramDisagreement disagreement;
  ProgramCase numbers;  // the same, with its numbers; its program's text is the task's
};

struct ProgramResult {
  std::vector<Comparison> comparisons;  // node: the claim; part: the input it was tried on
  std::vector<ProgramDisagreement> disagreements;  // the first of each claim that failed
  std::vector<std::string> overwritten;            // places outside of what is owned
  std::string failure;                             // the device failed: what it said
  std::string out_of_memory;                       // what the device lacked memory for
  std::optional<SmallestCase> smallest;            // of a sign-off
  std::string device;
  std::set<std::string> judged;       // claims that compared a finite number
  std::vector<std::string> unjudged;  // claims that did not
  bool exact = true;                  // whether device and reference were compared bit for bit

  SignoffResult::Verdict verdict() const;
};

// Who owns the coordinates on so many ranks. A table is for its own number of ranks and more.
Ownership make_ownership(const ProgramCase& c, std::size_t ranks);

// A program's text, compiled. An error for a text that does not parse, is not over arrays, or reads
// across coordinates: "FILE:line:column: what; mend".
Result<ArrayProgram> compile_separable(const std::string& file, std::string_view text);

// The state with every slot as long as the shapes ask for; constants have their value, the gradient
// and temporaries NaN. Parameter and state stay as they are.
ArrayState<float> with_fixed_values(ArrayState<float> state, const ArrayProgram& program,
                                    std::span<const ParameterShape> shapes);

// gradients[rank][coordinate] of a step, counted from 1.
using StepGradients = std::function<std::vector<std::vector<float>>(std::size_t step)>;

// Runs all steps, or those up to the first in which something is wrong, and judges them.
// `unjudged` names a claim only where no claim compared a finite number. Throws what `make` and
// OwnedOptimizer's constructor throw; std::invalid_argument for a program that does not compile.
ProgramResult judge_program_case(const DeviceMaker& make, const ProgramCase& c);
// The same for a case whose program is compiled already and whose gradients come from elsewhere.
ProgramResult judge_program_case(const DeviceMaker& make, const ProgramCase& c,
                                 const ArrayProgram& program, const StepGradients& gradients,
                                 const std::function<void(std::size_t)>& step_done = {});

// The loosest of what the device says of the operations that run parts of a program.
Contract program_contract(const Device& device);

// Whether all that is wrong is what stands for the mean of no coordinate: NaN. Of such a case
// nothing could be said where the device is right.
bool is_mean_of_none(const ProgramCase& c, const ProgramDisagreement& wrong);

// What a run has wrong, as one disagreement: the first of those claims, a write outside of what is
// owned ("written outside of what is owned"), or a failure ("the device failed"); none of these:
// none. Without claims, any of them.
std::optional<ProgramDisagreement> first_wrong(const ProgramResult& result,
                                               const std::set<std::string>& claims = {});
inline constexpr const char* kOverwritten = "written outside of what is owned";
inline constexpr const char* kFailed = "the device failed";

// A simpler case in which the same claim fails: fewer ranks, steps, coordinates and assignments,
// and simpler numbers. A case that is not wrong is left as it is. At most `evaluations` runs.
ProgramCase shrink(const ProgramCase& c, const DeviceMaker& make, std::size_t evaluations = 3000);

// Numbers of a case that its program does not declare: starts that differ from the declared one,
// and gradients.
std::size_t count_of_numbers(const ProgramCase& c);

// JSON: numbers as exact_number.h writes them, the program as its lines; starts that are as
// declared are left out.
nlohmann::ordered_json to_json(const ProgramCase& c);
// An error names the place by its JSON pointer, or the program's line and column.
Result<ProgramCase> program_case_of(const nlohmann::ordered_json& json);

}  // namespace shardproof
