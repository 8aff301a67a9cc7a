// Memory of a candidate's replicas: one region that the parent and its child map at one address.
// An allocation has its own pages: a canary before it and in the slack after it, then a page that
// nobody may touch. The parent may write it; the child may read it, and write it while a call says
// so.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace shardproof {

struct PageRange {
  char* start;
  std::size_t bytes;
  int protection;  // of mprotect
};

class CandidateMemory {
 public:
  struct Allocation {
    char* start;  // a multiple of 64
    std::size_t bytes;
    PageRange pages;
  };

  CandidateMemory();
  ~CandidateMemory();
  CandidateMemory(const CandidateMemory&) = delete;
  CandidateMemory& operator=(const CandidateMemory&) = delete;

  // Filled with 0xff: float32 NaN. Throws OutOfDeviceMemory.
  char* allocate(std::size_t bytes);
  // Throws DeviceError for a pointer that is not a live allocation.
  void release(void* pointer);

  bool empty() const { return live_.empty(); }

  // The allocation in which `pointer` lies, or at whose end it stands; null: none.
  const Allocation* find(const void* pointer) const;
  // The one that lies nearest, no more than a page away; null: none.
  const Allocation* nearest(const void* pointer) const;

  // What the child has yet to do to its own mapping; forgotten by this call.
  std::vector<PageRange> take_changes();
  // In a child that was just forked: live allocations can be read, the rest not touched.
  void enter_child() const;

  // The first canary byte that is not as it was, as an offset from the allocation's start (negative
  // before it, at least `bytes` after it); 0: all are whole.
  static std::ptrdiff_t broken_canary(const Allocation& allocation);
  static void mend_canary(const Allocation& allocation);

 private:
  char* region_ = nullptr;
  std::size_t region_bytes_ = 0, used_ = 0;
  std::map<const char*, Allocation> live_;
  std::multimap<std::size_t, char*> spare_;  // page ranges by size
  std::vector<PageRange> changes_;
};

}  // namespace shardproof
