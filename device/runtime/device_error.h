// What every failure of a device is thrown as: no GPU, no memory, a launch that broke a rule. Want
// of memory has a type of its own: it says nothing against the device's arithmetic.
#pragma once

#include <stdexcept>

namespace shardproof {

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class OutOfDeviceMemory : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

}  // namespace shardproof
