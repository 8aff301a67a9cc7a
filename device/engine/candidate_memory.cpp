#include "device/engine/candidate_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/runtime/device_error.h"

namespace shardproof {
namespace {

constexpr std::size_t page = 4096;
constexpr unsigned char canary = 0xff;

}  // namespace

CandidateMemory::CandidateMemory() {
  for (region_bytes_ = std::size_t{1} << 38; region_bytes_ >= std::size_t{1} << 30;
       region_bytes_ /= 2) {
    void* region =
        mmap(nullptr, region_bytes_, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) continue;
    region_ = static_cast<char*>(region);
    return;
  }
  throw OutOfDeviceMemory("no address space for a candidate's memory");
}

CandidateMemory::~CandidateMemory() { munmap(region_, region_bytes_); }

char* CandidateMemory::allocate(std::size_t bytes) {
  const std::size_t padded = (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64;
  const std::size_t mapped = (padded + 64 + page - 1) / page * page;
  char* pages;
  if (auto spare = spare_.find(mapped); spare != spare_.end()) {
    pages = spare->second;
    spare_.erase(spare);
  } else {
    if (mapped + page > region_bytes_ - used_)
      throw OutOfDeviceMemory("no room for " + std::to_string(bytes) + " bytes");
    pages = region_ + used_;
    used_ += mapped + page;
    if (mprotect(pages, mapped, PROT_READ | PROT_WRITE) != 0)
      throw OutOfDeviceMemory("no room for " + std::to_string(bytes) + " bytes");
  }
  std::memset(pages, canary, mapped);
  char* start = pages + mapped - padded;
  const Allocation allocation{start, bytes, {pages, mapped, PROT_READ}};
  live_.emplace(start, allocation);
  changes_.push_back(allocation.pages);
  return start;
}

void CandidateMemory::release(void* pointer) {
  const auto found = live_.find(static_cast<const char*>(pointer));
  if (found == live_.end())
    throw DeviceError("release of a pointer that is not a live device allocation");
  PageRange pages = found->second.pages;
  pages.protection = PROT_NONE;
  changes_.push_back(pages);
  spare_.emplace(pages.bytes, pages.start);
  live_.erase(found);
}

const CandidateMemory::Allocation* CandidateMemory::find(const void* pointer) const {
  auto after = live_.upper_bound(static_cast<const char*>(pointer));
  if (after == live_.begin()) return nullptr;
  const Allocation& allocation = std::prev(after)->second;
  return pointer <= allocation.start + allocation.bytes ? &allocation : nullptr;
}

const CandidateMemory::Allocation* CandidateMemory::nearest(const void* pointer) const {
  const auto* at = static_cast<const char*>(pointer);
  auto after = live_.upper_bound(at);
  if (after != live_.begin()) {
    const Allocation& before = std::prev(after)->second;
    if (at < before.pages.start + before.pages.bytes + page) return &before;
  }
  if (after != live_.end() && at + page >= after->second.pages.start) return &after->second;
  return nullptr;
}

std::vector<PageRange> CandidateMemory::take_changes() { return std::exchange(changes_, {}); }

void CandidateMemory::enter_child() const {
  mprotect(region_, region_bytes_, PROT_NONE);
  for (const auto& [start, allocation] : live_)
    mprotect(allocation.pages.start, allocation.pages.bytes, PROT_READ);
}

std::ptrdiff_t CandidateMemory::broken_canary(const Allocation& allocation) {
  const auto whole = [](char byte) { return static_cast<unsigned char>(byte) == canary; };
  const char* end = allocation.start + allocation.bytes;
  const char* last = allocation.pages.start + allocation.pages.bytes;
  if (const char* broken = std::find_if_not(end, last, whole); broken != last)
    return broken - allocation.start;
  if (const char* broken = std::find_if_not(static_cast<const char*>(allocation.pages.start),
                                            static_cast<const char*>(allocation.start), whole);
      broken != allocation.start)
    return broken - allocation.start;
  return 0;
}

void CandidateMemory::mend_canary(const Allocation& allocation) {
  std::memset(allocation.pages.start, canary,
              static_cast<std::size_t>(allocation.start - allocation.pages.start));
  char* end = allocation.start + allocation.bytes;
  std::memset(end, canary,
              static_cast<std::size_t>(allocation.pages.start + allocation.pages.bytes - end));
}

}  // namespace shardproof
