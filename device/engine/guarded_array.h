// GuardedArray: device memory of one replica between guard words. All words start as one pattern,
// guards, pads and what was never written alike, so that a stray write shows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "device/engine/device.h"

namespace shardproof {

// A quiet NaN as one float32 number and as two bfloat16 ones.
inline constexpr std::uint32_t kPadWord = 0x7fc57fc5u;

// `words` of four bytes.
class GuardedArray {
 public:
  GuardedArray(Device& device, int replica, std::size_t words, std::string name)
      : device_(device), replica_(replica), words_(words), name_(std::move(name)) {
    memory_ = device.allocate(replica, words + 2 * kGuard);
    const std::vector<std::uint32_t> pattern(std::min(words + 2 * kGuard, kPiece), kPadWord);
    for (std::size_t at = 0; at < words + 2 * kGuard; at += pattern.size()) {
      const std::size_t count = std::min(pattern.size(), words + 2 * kGuard - at);
      device.upload(replica, memory_ + at, reinterpret_cast<const float*>(pattern.data()), count);
    }
  }
  ~GuardedArray() {
    try {
      device_.release(replica_, memory_);
    } catch (const DeviceError&) {
      // The device failed before, and that was reported.
    }
  }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  template <class T = float>
  T* as() const {
    return reinterpret_cast<T*>(memory_ + kGuard);
  }
  const std::string& name() const { return name_; }

  // Words; `at` counts words too.
  template <class T>
  void upload(std::size_t at, const T* from, std::size_t words) {
    device_.upload(replica_, as<float>() + at, reinterpret_cast<const float*>(from), words);
  }
  template <class T>
  void download(std::size_t at, T* to, std::size_t words) const {
    device_.download(replica_, as<float>() + at, reinterpret_cast<float*>(to), words);
  }

  // "a word before its start", "a word after its end"; empty when all guards are intact.
  std::string broken_guard() const {
    std::array<std::uint32_t, kGuard> guard;
    const auto is_pattern = [](std::uint32_t word) { return word == kPadWord; };
    device_.download(replica_, memory_, reinterpret_cast<float*>(guard.data()), kGuard);
    if (!std::all_of(guard.begin(), guard.end(), is_pattern)) return "a word before its start";
    device_.download(replica_, memory_ + kGuard + words_, reinterpret_cast<float*>(guard.data()),
                     kGuard);
    if (!std::all_of(guard.begin(), guard.end(), is_pattern)) return "a word after its end";
    return "";
  }

 private:
  static constexpr std::size_t kGuard = 16;  // words; keeps the alignment of what lies between
  static constexpr std::size_t kPiece = std::size_t{1} << 18;

  Device& device_;
  int replica_;
  std::size_t words_;
  std::string name_;
  float* memory_ = nullptr;
};

}  // namespace shardproof
