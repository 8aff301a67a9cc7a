#include "device/runtime/host/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "device/runtime/device_error.h"
#include "device/runtime/host/spares.h"

namespace shardproof::host {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool guard_pages = false;
#else
constexpr bool guard_pages = true;
#endif

[[noreturn]] void no_room(std::size_t count) {
  throw OutOfDeviceMemory("no room for " + std::to_string(count) + " numbers in device memory");
}

constexpr std::size_t most_spare_bytes = std::size_t{256} << 20;
constexpr unsigned char unwritten = 0xff;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Of the mapping of an allocation of so many bytes, what lies between the guard pages.
std::size_t body_bytes(std::size_t bytes) {
  const std::size_t page = page_bytes();
  return (bytes + page - 1) / page * page;
}

[[noreturn]] void end_process(const char* what, std::size_t bytes) {
  std::array<char, 160> line{};
  const int length = std::snprintf(line.data(), line.size(),
                                   "device memory was written %s of %zu bytes\n", what, bytes);
  static_cast<void>(!write(STDERR_FILENO, line.data(), static_cast<std::size_t>(length)));
  _exit(out_of_bounds_exit_code);
}

bool is_unwritten(const char* from, const char* end) {
  return from == end ||
         (static_cast<unsigned char>(*from) == unwritten &&
          std::memcmp(from, from + 1, static_cast<std::size_t>(end - from) - 1) == 0);
}

// A small mapping that nobody uses: all its numbers are NaN, and nobody may write to it.
class Resting {
 public:
  Resting(char* mapping, std::size_t mapping_bytes, std::size_t used)
      : mapping_(mapping), mapping_bytes_(mapping_bytes), used_(used) {}
  Resting(Resting&& other) noexcept
      : mapping_(std::exchange(other.mapping_, nullptr)),
        mapping_bytes_(other.mapping_bytes_),
        used_(other.used_) {}
  Resting& operator=(Resting&&) = delete;
  ~Resting() {
    if (mapping_ != nullptr) munmap(wake(), mapping_bytes_);
  }

  // The mapping, for another use.
  char* wake() {
    const std::size_t page = page_bytes();
    if (!is_unwritten(mapping_ + page, mapping_ + mapping_bytes_ - page)) {
      end_process("after the release of an allocation", used_);
    }
    return std::exchange(mapping_, nullptr);
  }

 private:
  char* mapping_;
  std::size_t mapping_bytes_;
  std::size_t used_;  // bytes of the allocation that was there
};

// By size in pages of at least 4096 bytes, from 0.
thread_local std::array<Spares<Resting, 128>, DeviceMemory::open_bytes / 4096 + 1> resting;

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (const auto& [start, allocation] : allocations_) retire(start, allocation);
  for (const auto& [bytes, mapping] : spare_) munmap(mapping, bytes);
}

float* DeviceMemory::allocate(std::size_t count, Guard guard) {
  if (count > (std::size_t{1} << 60)) no_room(count);
  const std::size_t bytes = count * sizeof(float);
  Allocation allocation{bytes, nullptr, 0};
  char* start;
  if (guard_pages && guard == Guard::pages) {
    allocation = map(bytes);
    if (allocation.mapping == nullptr) no_room(count);
    start = allocation.mapping + allocation.mapping_bytes - page_bytes() - bytes;
  } else {
    start = static_cast<char*>(std::malloc(std::max<std::size_t>(bytes, 1)));
    if (start == nullptr) no_room(count);
    std::memset(start, unwritten, bytes);
  }
  const std::lock_guard lock(mutex_);
  allocations_.emplace(start, allocation);
  return reinterpret_cast<float*>(start);
}

void DeviceMemory::release(float* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<char*>(pointer));
  if (found == allocations_.end()) {
    throw DeviceError("release of a pointer that is not a live device allocation");
  }
  retire(found->first, found->second);
  allocations_.erase(found);
}

// A mapping whose body is unwritten between its guard pages; without one when there is no room.
DeviceMemory::Allocation DeviceMemory::map(std::size_t bytes) {
  const std::size_t page = page_bytes();
  const std::size_t body = body_bytes(bytes);
  const std::size_t mapping_bytes = body + 2 * page;
  if (body <= open_bytes) {
    if (auto rested = resting[body / page].take()) return {bytes, rested->wake(), mapping_bytes};
  }
  char* const mapping = map_closed(mapping_bytes);
  if (mapping == nullptr) return {bytes, nullptr, 0};
  if (body > 0 && mprotect(mapping + page, body, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapping, mapping_bytes);
    return {bytes, nullptr, 0};
  }
  std::memset(mapping + page, unwritten, body);
  return {bytes, mapping, mapping_bytes};
}

// Pages that cannot be touched yet; null when there are none left.
char* DeviceMemory::map_closed(std::size_t mapping_bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = spare_.find(mapping_bytes); found != spare_.end()) {
      char* const mapping = found->second;
      spare_.erase(found);
      spare_bytes_ -= mapping_bytes;
      return mapping;
    }
  }
  void* const mapping =
      mmap(nullptr, mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapping == MAP_FAILED ? nullptr : static_cast<char*>(mapping);
}

void DeviceMemory::retire(char* start, const Allocation& allocation) {
  if (allocation.mapping == nullptr) {
    std::free(start);
    return;
  }
  const std::size_t bytes = allocation.mapping_bytes;
  const std::size_t page = page_bytes();
  const std::size_t body = bytes - 2 * page;
  if (body <= open_bytes) {
    if (!is_unwritten(allocation.mapping + page, start)) {
      end_process("before the start of an allocation", allocation.bytes);
    }
    std::memset(start, unwritten, allocation.bytes);
    Resting rests(allocation.mapping, bytes, allocation.bytes);
    resting[body / page].give(rests);
    return;
  }
  if (spare_bytes_ + bytes > most_spare_bytes ||
      mprotect(allocation.mapping, bytes, PROT_NONE) != 0) {
    munmap(allocation.mapping, bytes);
    return;
  }
  spare_.emplace(bytes, allocation.mapping);
  spare_bytes_ += bytes;
}

bool DeviceMemory::describe(const void* address, char* text, std::size_t size) const {
  const char* const at = static_cast<const char*>(address);
  const std::lock_guard lock(mutex_);
  for (const auto& [start, allocation] : allocations_) {
    if (at < allocation.mapping || at >= allocation.mapping + allocation.mapping_bytes) continue;
    const std::ptrdiff_t offset = at - start;
    if (offset < 0) {
      std::snprintf(text, size, "%td bytes before the start of an allocation of %zu bytes", -offset,
                    allocation.bytes);
    } else {
      std::snprintf(text, size, "%td bytes past the end of an allocation of %zu bytes",
                    offset - static_cast<std::ptrdiff_t>(allocation.bytes), allocation.bytes);
    }
    return true;
  }
  return false;
}

}  // namespace shardproof::host
