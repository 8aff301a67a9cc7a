#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <memory>

#include "device/engine/builtin_device.h"

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

TEST_CASE("a CUDA device needs replicas") {
  CHECK_THROWS_WITH(make_cuda_device(0), Catch::Contains("at least one replica"));
}

}  // namespace shardproof
