#include <dlfcn.h>

#include <bit>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/owned_optimizer.h"
#include "reference/slots/compile.h"
#include "reference/slots/optimizers.h"
#include "reference/slots/text.h"

namespace shardproof {

TEST_CASE("the program starts without a driver, and the CUDA device says what is missing") {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver != nullptr) {
    WARN("this machine has a driver; nothing was checked");
    dlclose(driver);
    return;
  }
  CHECK_THROWS_AS(make_cuda_device(1), DeviceError);
  CHECK_THROWS_WITH(make_cuda_device(1), Catch::StartsWith("no GPU can be used: ") &&
                                             Catch::Contains("use the host backend"));
}

TEST_CASE("an optimizer step gives the host's bits on a GPU") {
  std::unique_ptr<Device> gpu;
  try {
    gpu = make_cuda_device(1);
  } catch (const DeviceError& error) {
    WARN("not checked: " << error.what());
    return;
  }
  const auto host = make_host_device(1, 0, 1);
  const std::vector<ParameterShape> shapes = {{30, 41}, {0, 1}, {517, 1}};
  const std::size_t n = elements(Scope::coordinate, shapes);
  for (const std::string name : {"adamw", "momentum", "lion", "radam", "adafactor-separable"}) {
    CAPTURE(name);
    const ArrayProgram program = *compile_array(name, *parse_program(name, *optimizer_text(name)));
    ArrayState<float> start;
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (const ArrayProgram::SlotInfo& slot : program.slots[scope]) {
        start.values[scope].emplace_back(elements(static_cast<Scope>(scope), shapes),
                                         slot.initial ? slot.initial->convert_to<float>() : 0.3f);
      }
    }
    OwnedOptimizer on_gpu(*gpu, program, shapes, mod_ownership(n, 1), start);
    OwnedOptimizer on_host(*host, program, shapes, mod_ownership(n, 1), start);
    for (std::size_t step = 0; step < 3; ++step) {
      std::vector<float> gradient(n);
      for (std::size_t i = 0; i < n; ++i) {
        gradient[i] = static_cast<float>((i * 7919 + step * 31) % 1009) * 0x1p-9f - 1.0f;
      }
      const std::vector<std::vector<float>> gradients = {gradient};
      on_gpu.step(gradients);
      on_host.step(gradients);
      const std::vector<float> got = on_gpu.parameters(0), expected = on_host.parameters(0);
      std::size_t different = 0;
      for (std::size_t i = 0; i < n; ++i) {
        different +=
            std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i]);
      }
      CHECK(different == 0);
      CHECK(on_gpu.overwritten().empty());
    }
  }
}

TEST_CASE("a CUDA device needs replicas") {
  CHECK_THROWS_WITH(make_cuda_device(0), Catch::Contains("at least one replica"));
}

}  // namespace shardproof
