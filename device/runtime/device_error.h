// What every failure of a device is thrown as: no GPU, no memory, a launch that broke a rule.
#pragma once

#include <stdexcept>

namespace shardproof {

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace shardproof
