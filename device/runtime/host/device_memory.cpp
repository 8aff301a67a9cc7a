#include "device/runtime/host/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

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
  throw DeviceError("no room for " + std::to_string(count) + " numbers in device memory");
}

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (const auto& [start, allocation] : allocations_) unmap(allocation);
}

void DeviceMemory::unmap(const Allocation& allocation) {
  if constexpr (guard_pages) {
    munmap(allocation.mapping, allocation.mapping_bytes);
  } else {
    std::free(allocation.mapping);
  }
}

float* DeviceMemory::allocate(std::size_t count) {
  if (count > (std::size_t{1} << 60)) no_room(count);
  Allocation allocation{count * sizeof(float), nullptr, 0};
  char* start;
  if constexpr (guard_pages) {
    const std::size_t page = page_bytes();
    const std::size_t body = (allocation.bytes + page - 1) / page * page;
    allocation.mapping_bytes = body + 2 * page;
    void* const mapping = mmap(nullptr, allocation.mapping_bytes, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) no_room(count);
    allocation.mapping = static_cast<char*>(mapping);
    char* const usable = allocation.mapping + page;
    if (body > 0 && mprotect(usable, body, PROT_READ | PROT_WRITE) != 0) {
      munmap(mapping, allocation.mapping_bytes);
      no_room(count);
    }
    std::memset(usable, 0xff, body);
    start = usable + body - allocation.bytes;
  } else {
    allocation.mapping = static_cast<char*>(std::malloc(allocation.bytes));
    if (allocation.mapping == nullptr) no_room(count);
    start = allocation.mapping;
    std::memset(start, 0xff, allocation.bytes);
  }
  const std::lock_guard lock(mutex_);
  allocations_.emplace(start, allocation);
  return reinterpret_cast<float*>(start);
}

void DeviceMemory::release(float* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<const char*>(pointer));
  if (found == allocations_.end()) {
    throw DeviceError("release of a pointer that is not a live device allocation");
  }
  unmap(found->second);
  allocations_.erase(found);
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
