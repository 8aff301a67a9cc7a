#include "device/runtime/host/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device/runtime/device_error.h"

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

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (const auto& [start, allocation] : allocations_) retire(start, allocation);
  for (const auto& [bytes, mapping] : spare_) munmap(mapping, bytes);
}

float* DeviceMemory::allocate(std::size_t count, Guard guard) {
  if (count > (std::size_t{1} << 60)) no_room(count);
  Allocation allocation{count * sizeof(float), nullptr, 0};
  char* usable;
  std::size_t body = allocation.bytes;
  if (guard_pages && guard == Guard::pages) {
    const std::size_t page = page_bytes();
    body = (allocation.bytes + page - 1) / page * page;
    allocation.mapping_bytes = body + 2 * page;
    allocation.mapping = map(allocation.mapping_bytes);
    if (allocation.mapping == nullptr) no_room(count);
    usable = allocation.mapping + page;
    if (body > 0 && mprotect(usable, body, PROT_READ | PROT_WRITE) != 0) {
      munmap(allocation.mapping, allocation.mapping_bytes);
      no_room(count);
    }
  } else {
    usable = static_cast<char*>(std::malloc(std::max<std::size_t>(body, 1)));
    if (usable == nullptr) no_room(count);
  }
  std::memset(usable, 0xff, body);
  char* const start = usable + body - allocation.bytes;
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

// Pages that cannot be touched yet; null when there are none left.
char* DeviceMemory::map(std::size_t mapping_bytes) {
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
