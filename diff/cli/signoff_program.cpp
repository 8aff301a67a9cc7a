#include "diff/cli/signoff_program.h"

#include <fmt/format.h>

#include <chrono>

#include "diff/cli/command.h"
#include "diff/cli/program_file.h"
#include "reference/slots/compile.h"
#include "reference/slots/expand.h"
#include "reference/slots/ownership.h"

namespace shardproof::cli {

void add_program_options(CLI::App& signoff, ProgramArguments& arguments) {
  CLI::Option* const program =
      signoff
          .add_option("--program", arguments.program,
                      "Judge the sharded step of an optimizer instead of a network: a .slots file, "
                      "or a name such as adamw")
          ->check(some_name());
  for (const char* of_networks : {"--net", "--size", "--classes", "--epsilon", "--image",
                                  "--weights", "--batch", "--baseline", "--regression"}) {
    program->excludes(signoff.get_option(of_networks));
  }
  signoff
      .add_option("--sizes", arguments.sizes,
                  "Parameters of the program: vectors, matrices as 4x3, 0 for an empty one")
      ->needs(program)
      ->capture_default_str();
  signoff
      .add_option("--owners", arguments.owners,
                  "mod, blocks, greedy, or a file with the owner of each coordinate")
      ->needs(program)
      ->check(some_name())
      ->capture_default_str();
  signoff.add_option("--steps", arguments.steps, "Steps of the program, one after the other")
      ->needs(program)
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
}

Result<ProgramInputs> prepare_program(const ProgramArguments& arguments, std::size_t replicas) {
  Result<ProgramFile> file = load_program(arguments.program);
  if (!file) return Error{file.error()};
  if (file->text.whole()) {
    return Error{file->name +
                 ": names its slots one by one; a device runs programs over arrays (parameter, "
                 "gradient, state)"};
  }
  ProgramInputs inputs;
  Result<ArrayProgram> program = compile_array(file->name, file->text);
  if (!program) return Error{program.error()};
  inputs.name = file->name;
  inputs.program = *std::move(program);
  inputs.lines = std::move(file->lines);
  if (const auto across = inputs.program.across_coordinates()) {
    return Error{fmt::format(
        "{}: reads across coordinates, so that it cannot be partitioned; put all_reduce in front "
        "of the sum, or see shardproof separable {}",
        quoted_line(inputs.name, inputs.lines, inputs.program.statements[*across].position.line),
        arguments.program)};
  }

  Result<std::vector<ParameterShape>> shapes = parse_shapes(arguments.sizes);
  if (!shapes) return Error{shapes.error()};
  inputs.shapes = *std::move(shapes);
  const std::size_t coordinates = elements(Scope::coordinate, inputs.shapes);

  constexpr std::size_t kMostRanks = 1024;
  if (replicas > kMostRanks) {
    return Error{
        fmt::format("--replicas {}: programs are judged on up to {} ranks", replicas, kMostRanks)};
  }
  // Full parameters and gradients on each rank, on the device and on the host; every slot three
  // times over: sharded, replicated, reference.
  const double slots =
      static_cast<double>(inputs.program.slots[index_of(Scope::coordinate)].size());
  const double needed =
      4.0 * static_cast<double>(coordinates) * (5.0 * static_cast<double>(replicas) + 5 * slots) +
      1e8;
  const double present = machine_memory();
  if (needed > present) {
    return Error{fmt::format(
        "--sizes {}: {} coordinates on {} ranks take about {:.3g} GB, the machine has {:.3g} GB: "
        "ask for fewer",
        arguments.sizes, coordinates, replicas, needed / 1e9, present / 1e9)};
  }

  if (arguments.owners == "mod") {
    inputs.owners = OwnerMap::mod;
  } else if (arguments.owners == "greedy") {
    inputs.owners = OwnerMap::greedy;
  } else if (arguments.owners != "blocks") {
    Result<std::string> text = read_text_file(arguments.owners);
    if (!text) {
      return Error{"--owners " + text.error() + "; give mod, blocks, greedy or a readable file"};
    }
    Result<Ownership> table = read_ownership(arguments.owners, *text, coordinates, replicas);
    if (!table) return Error{table.error()};
    inputs.owners = OwnerMap::table;
    inputs.table = std::move(table->owner_of);
  }
  return inputs;
}

ProgramReport judge_program(const ProgramArguments& arguments, const ProgramInputs& inputs,
                            const DeviceFactory& make, std::size_t replicas, std::uint64_t seed) {
  const auto start = std::chrono::steady_clock::now();
  const ProgramTask task{inputs.program, inputs.shapes,   inputs.owners, inputs.table,
                         replicas,       arguments.steps, seed};
  ProgramReport report;
  report.program = inputs.name;
  report.version = SHARDPROOF_VERSION;
  report.lines = inputs.lines;
  report.sizes = arguments.sizes;
  report.owners = arguments.owners;
  report.coordinates = elements(Scope::coordinate, inputs.shapes);
  report.ranks = replicas;
  report.steps = arguments.steps;
  report.seed = seed;
  report.result = sign_off_program(make, task, progress_bar("sign-off"));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace shardproof::cli
