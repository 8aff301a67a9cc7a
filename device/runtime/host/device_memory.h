// Device memory on the CPU. Every allocation starts as NaN, so that a read of what was never
// written shows, and ends at a page that cannot be touched, so that an access past its end faults
// at once; one before its start faults from the page before on. AddressSanitizer builds use the
// sanitizer's own redzones instead, and an allocation can be had without guards: two mappings each
// add up to more than the system gives a process.
//
// Released memory of more than `open_bytes` cannot be touched either, but its pages are kept for
// the next allocation of the same size: faulting them in anew costs three times what filling them
// does. Closing and opening the pages of smaller ones would cost more than the launches that use
// them, so they stay open and are filled with NaN: a read after the release no longer faults but
// gives NaN; a write is found when the memory is next used or its OS thread ends, and ends the
// process without the kernel's name. In return a small allocation's release finds what was written
// between the page's beginning and its start.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace shardproof::host {

// Of a process that an access outside device memory ended.
inline constexpr int out_of_bounds_exit_code = 86;

class DeviceMemory {
 public:
  static constexpr std::size_t open_bytes = 16 * 1024;

  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  enum class Guard { pages, none };

  // `count` float32 numbers, all NaN. Throws OutOfDeviceMemory when there is no room.
  float* allocate(std::size_t count, Guard guard = Guard::pages);

  // Throws DeviceError for a pointer that `allocate` did not return, or returned and
  // already released.
  void release(float* pointer);

  // Writes where `address` lies relative to the nearest allocation, for a message: "8 bytes past
  // the end of an allocation of 400 bytes". Called by a signal handler: takes the lock, which a
  // faulting kernel never holds, and makes no memory. Returns false when no allocation is near.
  bool describe(const void* address, char* text, std::size_t size) const;

 private:
  struct Allocation {
    std::size_t bytes;
    char* mapping;  // null: without guards
    std::size_t mapping_bytes;
  };
  Allocation map(std::size_t bytes);
  char* map_closed(std::size_t mapping_bytes);
  void retire(char* start, const Allocation& allocation);

  mutable std::mutex mutex_;
  std::map<char*, Allocation> allocations_;
  std::multimap<std::size_t, char*> spare_;  // closed mappings by size
  std::size_t spare_bytes_ = 0;
};

}  // namespace shardproof::host
