// Speed and memory of the sharded step on the host executor: AdamW on 10 million coordinates in
// four parameters, 4 ranks, 2 workers. The target of issue 4: a step under 3 s, no more than 2.5
// times the memory of the arrays themselves.

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/owned_optimizer.h"
#include "reference/slots/compile.h"
#include "reference/slots/text.h"

namespace shardproof {
namespace {

ArrayProgram adamw() {
  const std::string path = std::string(SHARDPROOF_SOURCE_DIR) + "/fixtures/programs/adamw.slots";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return *compile_array(path, *parse_program(path, text));
}

ArrayState<float> initial_state(const ArrayProgram& program,
                                const std::vector<ParameterShape>& shapes) {
  ArrayState<float> state;
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    const std::size_t count = elements(static_cast<Scope>(scope), shapes);
    for (const ArrayProgram::SlotInfo& slot : program.slots[scope]) {
      const bool empty = slot.role == ArrayProgram::Role::temporary && count > 1;
      state.values[scope].emplace_back(empty ? 0 : count,
                                       slot.initial ? slot.initial->convert_to<float>() : 0.25f);
    }
  }
  return state;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double peak_mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void run(const char* name, OwnedOptimizerOptions options) {
  constexpr std::size_t ranks = 4;
  const std::vector<ParameterShape> shapes = {
      {2000, 2500}, {3000000, 1}, {999999, 1}, {1000001, 1}};
  const std::size_t n = elements(Scope::coordinate, shapes);
  const auto device = make_host_device(ranks, 0, 2);
  const ArrayProgram program = adamw();
  std::vector<std::vector<float>> gradients(ranks, std::vector<float>(n));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < n; ++i) {
      gradients[rank][i] = static_cast<float>((i * 2654435761u + rank) % 1000) * 0x1p-10f - 0.5f;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  OwnedOptimizer optimizer(*device, program, shapes, block_ownership(n, ranks),
                           initial_state(program, shapes), options);
  std::printf("%s: made in %.2f s", name, seconds_since(start));
  for (int step = 0; step < 3; ++step) {
    const auto before = std::chrono::steady_clock::now();
    optimizer.step(gradients);
    std::printf(", a step in %.2f s", seconds_since(before));
  }
  // Full parameters and gradients on each rank, two numbers of state once.
  const double arrays = static_cast<double>(n) * sizeof(float) * (2 * ranks + 2) / (1 << 20);
  std::printf("; peak %.0f MiB (with the gradients on the host), %.2f times the arrays\n",
              peak_mebibytes(), peak_mebibytes() / arrays);
}

}  // namespace
}  // namespace shardproof

// An argument chooses bfloat16 parameters: peak memory is of the process.
int main(int count, char**) {
  using Options = shardproof::OwnedOptimizerOptions;
  if (count > 1) {
    shardproof::run("bfloat16 parameters", {Options::Parameters::bfloat16, {}, 0});
  } else {
    shardproof::run("float32 parameters", {});
  }
}
