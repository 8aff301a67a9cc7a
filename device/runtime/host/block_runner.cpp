#include "device/runtime/host/block_runner.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "device/runtime/host/cuda_subset.h"
#include "device/runtime/host/fiber_annotations.h"

namespace shardproof::host {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t page = 4096;
constexpr std::size_t stack_bytes = 64 * 1024;
constexpr std::size_t shared_capacity = (max_shared_bytes + page - 1) / page * page;

// A thread that waits keeps its state until it runs again.
enum State : int { unstarted, running, at_barrier, at_warp_operation, finished };

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::uint32_t lane_bit(int thread) { return 1u << (thread % Scheduler::warp_size); }

char* map_with_guards(std::size_t bytes) {
  void* const mapping = mmap(nullptr, bytes + 2 * page, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  char* const usable = static_cast<char*>(mapping) + page;
  if (mprotect(usable, bytes, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  return usable;
}

void unmap_with_guards(char* usable, std::size_t bytes) {
  sanitizer::unpoison(usable, bytes);  // abandoned frames leave poison behind
  munmap(usable - page, bytes + 2 * page);
}

std::string text(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ")";
}

std::string text(Site site) { return std::string(site.file) + ":" + std::to_string(site.line); }

}  // namespace

// A stack, and the thread of the block that it carries. One stack carries many threads in turn.
struct BlockRunner::Fiber {
  Fiber(std::size_t number, void (*entry)(context::transfer_t))
      : bottom(map_with_guards(stack_bytes)) {
    // Stack tops three cache lines apart, or the hot frames of all fibers share one cache set.
    const std::size_t stagger = number * 192 % page;
    context = context::make_fcontext(bottom + stack_bytes - stagger, stack_bytes - stagger, entry);
  }
  ~Fiber() { unmap_with_guards(bottom, stack_bytes); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  char* bottom;
  void* context;  // where it stands while it does not run
  void* fake_stack = nullptr;
  int thread = -1;
};

struct BlockRunner::Thread {
  uint3 index;
  State state;
  Fiber* fiber;
  Site site;
  WarpOperation operation;
  unsigned mask;
  int argument, width;
  std::uint64_t value, result;
  void* tsan;
};

BlockRunner::BlockRunner() : shared_mapping_(map_with_guards(shared_capacity)) {}

BlockRunner::~BlockRunner() {
  for (void* fiber : tsan_fibers_) sanitizer::destroy_fiber(fiber);
  unmap_with_guards(shared_mapping_, shared_capacity);
}

void BlockRunner::describe_current(char* text, std::size_t size) const {
  std::snprintf(text, size, "kernel %.*s, block (%u,%u,%u), thread (%u,%u,%u)",
                static_cast<int>(launch_->kernel.size()), launch_->kernel.data(), block_.x,
                block_.y, block_.z, threadIdx.x, threadIdx.y, threadIdx.z);
}

bool BlockRunner::is_out_of_stack(std::uintptr_t stack_pointer) const {
  return stack_pointer < reinterpret_cast<std::uintptr_t>(current_fiber_->bottom) + 2 * page;
}

void BlockRunner::note_fault(const char* what) {
  std::snprintf(fault_.data(), fault_.size(), "%s", what);
}

void BlockRunner::leave_faulting_thread() {
  fail(name(running_) + ": out-of-bounds access, " + fault_.data());
  leave_to_worker();
  std::abort();  // a launch that failed is never resumed
}

// ---- Blocks

class BlockRunner::ResetCurrent {
 public:
  explicit ResetCurrent(BlockRunner* runner) { current_ = runner; }
  ~ResetCurrent() { current_ = nullptr; }
};

void BlockRunner::run(const Launch& launch, uint3 block) {
  const ResetCurrent reset(this);
  begin_launch(launch);
  begin_block(block);
  sanitizer::release(&block_start_);
  Fiber* const first = take_fiber();
  first->thread = scheduler_.pick();
  threads_[at(first->thread)].fiber = first;
  jump(first);
  if (!failed() && finished_ < threads_in_block_) fail(describe_deadlock());
  if (failed()) release_unfinished();
  sanitizer::switch_to(worker_tsan_);
  sanitizer::acquire(&block_end_);
  free_fibers_.insert(free_fibers_.end(), retired_fibers_.begin(), retired_fibers_.end());
  retired_fibers_.clear();
  if (failed()) {
    abandon_fibers();
    throw LaunchError(failure_);
  }
}

void BlockRunner::begin_launch(const Launch& launch) {
  launch_ = &launch;
  blockDim = launch.block;
  gridDim = launch.grid;
  worker_tsan_ = sanitizer::current_fiber();
  if (shared_bytes_ != launch.shared_bytes || shared_ == nullptr) {
    place_shared_memory(launch.shared_bytes);
  }
  if (shape_ == launch.block) return;
  shape_ = launch.block;
  threads_in_block_ = static_cast<int>(shape_.count());
  threads_.resize(at(threads_in_block_));
  unsigned linear = 0;
  for (Thread& thread : threads_) {
    thread.index = {linear % shape_.x, linear / shape_.x % shape_.y, linear / shape_.x / shape_.y};
    if constexpr (sanitizer::thread) {
      if (tsan_fibers_.size() <= linear) tsan_fibers_.push_back(sanitizer::create_fiber());
      thread.tsan = tsan_fibers_[linear];
    }
    ++linear;
  }
}

// Flush with the guard page that follows; the pages in front that are not needed cannot be touched.
void BlockRunner::place_shared_memory(std::size_t bytes) {
  shared_bytes_ = bytes;
  shared_ = shared_mapping_ + shared_capacity - (bytes + 3) / 4 * 4;
  if constexpr (sanitizer::address) {
    sanitizer::poison(shared_mapping_, shared_capacity);
    sanitizer::unpoison(shared_, bytes);
  } else {
    const std::size_t closed = static_cast<std::size_t>(shared_ - shared_mapping_) / page * page;
    mprotect(shared_mapping_, shared_capacity, PROT_READ | PROT_WRITE);
    if (closed > 0) mprotect(shared_mapping_, closed, PROT_NONE);
  }
}

void BlockRunner::begin_block(uint3 block) {
  block_ = block;
  blockIdx = block;
  failure_.clear();
  finished_ = 0;
  at_barrier_ = 0;
  lanes_waiting_.fill(0);
  lanes_finished_.fill(0);
  for (Thread& thread : threads_) {
    thread.state = unstarted;
    thread.fiber = nullptr;
  }
  if (shared_bytes_ > 0) std::memset(shared_, 0xff, shared_bytes_);
  const dim3& grid = launch_->grid;
  const std::uint64_t number = block.x + grid.x * (block.y + std::uint64_t{grid.y} * block.z);
  scheduler_.begin(runtime_->seed(), number, threads_in_block_);
}

// After a failure: what the threads did so far is over when the launch ends.
void BlockRunner::release_unfinished() {
  if constexpr (sanitizer::thread) {
    for (const Thread& thread : threads_) {
      sanitizer::switch_to(thread.tsan);
      sanitizer::release(&block_end_);
    }
  }
}

// After a failure: fibers stand in the middle of kernel text, which is never run to its end.
void BlockRunner::abandon_fibers() {
  fibers_.clear();
  free_fibers_.clear();
  for (void* fiber : tsan_fibers_) sanitizer::destroy_fiber(fiber);
  tsan_fibers_.clear();
  shape_ = {0, 0, 0};
}

// ---- Fibers

BlockRunner::Fiber* BlockRunner::take_fiber() {
  if (free_fibers_.empty()) {
    const auto entry = [](context::transfer_t from) {
      BlockRunner* const runner = BlockRunner::current();
      *static_cast<void**>(from.data) = from.fctx;
      runner->after_jump(nullptr);
      runner->fiber_main();
    };
    fibers_.push_back(std::make_unique<Fiber>(fibers_.size(), entry));
    return fibers_.back().get();
  }
  Fiber* const fiber = free_fibers_.back();
  free_fibers_.pop_back();
  return fiber;
}

// From the fiber that runs, or from the worker's own stack, to `to`. The context left behind is
// stored by whoever runs next.
void BlockRunner::jump(Fiber* to) {
  Fiber* const from = current_fiber_;
  current_fiber_ = to;
  sanitizer::before_jump(from != nullptr ? &from->fake_stack : &worker_fake_stack_, to->bottom,
                         stack_bytes);
  const context::transfer_t back =
      context::jump_fcontext(to->context, from != nullptr ? &from->context : &worker_context_);
  *static_cast<void**>(back.data) = back.fctx;
  after_jump(from);
}

void BlockRunner::leave_to_worker() {
  Fiber* const from = current_fiber_;
  current_fiber_ = nullptr;
  sanitizer::before_jump(&from->fake_stack, worker_stack_, worker_stack_bytes_);
  const context::transfer_t back = context::jump_fcontext(worker_context_, &from->context);
  *static_cast<void**>(back.data) = back.fctx;
  after_jump(from);
}

// `self`: the fiber that runs again, or null on the worker's stack and on a fresh fiber.
void BlockRunner::after_jump(Fiber* self) {
  if constexpr (sanitizer::address) {
    const void* bottom = nullptr;
    std::size_t size = 0;
    void* const fake = self != nullptr             ? self->fake_stack
                       : current_fiber_ == nullptr ? worker_fake_stack_
                                                   : nullptr;
    sanitizer::after_jump(fake, &bottom, &size);
    const bool from_worker = std::none_of(
        fibers_.begin(), fibers_.end(), [&](const auto& fiber) { return fiber->bottom == bottom; });
    if (from_worker) {
      worker_stack_ = bottom;
      worker_stack_bytes_ = size;
    }
  } else {
    static_cast<void>(self);
  }
}

// What every fiber runs: thread after thread, for as long as there are unstarted ones.
void BlockRunner::fiber_main() {
  Fiber* const self = current_fiber_;
  for (;;) {
    const int thread = self->thread;
    run_thread(thread);
    finish_thread(thread);
    const int next = failed() ? Scheduler::none : scheduler_.pick();
    if constexpr (!sanitizer::thread) {
      if (next != Scheduler::none && threads_[at(next)].state == unstarted) {
        self->thread = next;
        threads_[at(next)].fiber = self;
        continue;
      }
    }
    // A stack that carried two unordered threads would be a race of its own to ThreadSanitizer.
    (sanitizer::thread ? retired_fibers_ : free_fibers_).push_back(self);
    if (next == Scheduler::none) {
      leave_to_worker();
      continue;
    }
    Thread& chosen = threads_[at(next)];
    if (chosen.state == unstarted) {
      chosen.fiber = take_fiber();
      chosen.fiber->thread = next;
    }
    jump(chosen.fiber);
  }
}

// ---- Threads

void BlockRunner::run_thread(int thread) {
  Thread& self = threads_[at(thread)];
  self.state = running;
  running_ = thread;
  threadIdx = self.index;
  sanitizer::switch_to(self.tsan);
  sanitizer::acquire(&block_start_);
  launch_->body(launch_->arguments);
}

void BlockRunner::finish_thread(int thread) {
  sanitizer::release(&block_end_);
  sanitizer::switch_to(worker_tsan_);
  threads_[at(thread)].state = finished;
  ++finished_;
  const std::size_t warp = at(thread / Scheduler::warp_size);
  lanes_finished_[warp] |= lane_bit(thread);
  for (std::uint32_t lanes = lanes_waiting_[warp]; lanes != 0; lanes &= lanes - 1) {
    const int waiter = static_cast<int>(warp) * Scheduler::warp_size + __builtin_ctz(lanes);
    if ((threads_[at(waiter)].mask & lane_bit(thread)) != 0) return try_release_warp(waiter);
  }
  if (at_barrier_ > 0) try_release_block();
}

// The running thread waits. Returns when the scheduler has chosen it again.
void BlockRunner::suspend() {
  const int thread = running_;
  Thread& self = threads_[at(thread)];
  const int next = failed() ? Scheduler::none : scheduler_.pick();
  if (next == Scheduler::none) {
    leave_to_worker();
  } else if (next != thread) {
    Thread& chosen = threads_[at(next)];
    if (chosen.state == unstarted) {
      chosen.fiber = take_fiber();
      chosen.fiber->thread = next;
    }
    jump(chosen.fiber);
  }
  running_ = thread;
  self.state = running;
  threadIdx = self.index;
  sanitizer::switch_to(self.tsan);
}

// ---- Barriers and warp operations

void BlockRunner::block_barrier(Site site) {
  sanitizer::release(&barrier_);
  sanitizer::switch_to(worker_tsan_);
  Thread& self = threads_[at(running_)];
  self.site = site;
  self.state = at_barrier;
  if (at_barrier_++ == 0) {
    barrier_site_ = site;
  } else if (site.line != barrier_site_.line || site.file != barrier_site_.file) {
    fail(name(running_) + " waits at the barrier of " + text(site) + " while others wait at " +
         text(barrier_site_));
  }
  try_release_block();
  suspend();
}

// The lanes that there are of the warp whose first thread is `first`.
std::uint32_t BlockRunner::lanes_from(int first) const {
  const int lanes = threads_in_block_ - first;
  return lanes < Scheduler::warp_size ? (1u << lanes) - 1 : ~std::uint32_t{0};
}

void BlockRunner::try_release_block() {
  if (failed() || at_barrier_ + finished_ < threads_in_block_) return;
  if (finished_ > 0) {
    return fail(name(first_in(finished)) + " returned while " + waiting(first_in(at_barrier)));
  }
  at_barrier_ = 0;
  if constexpr (sanitizer::thread) {
    // Acquired for every waiter at once: later would include accesses of the next phase.
    for (Thread& thread : threads_) {
      sanitizer::switch_to(thread.tsan);
      sanitizer::acquire(&barrier_);
    }
    sanitizer::switch_to(worker_tsan_);
  }
  for (int first = 0; first < threads_in_block_; first += Scheduler::warp_size) {
    scheduler_.make_runnable(first / Scheduler::warp_size, lanes_from(first));
  }
}

std::uint64_t BlockRunner::warp_operation(WarpOperation operation, unsigned mask,
                                          std::uint64_t value, int argument, int width, Site site) {
  const int thread = running_;
  const std::size_t warp = at(thread / Scheduler::warp_size);
  // Of the warp operations only __syncwarp orders memory.
  if (operation == WarpOperation::synchronise) sanitizer::release(&warp_barrier_[warp]);
  sanitizer::switch_to(worker_tsan_);
  Thread& self = threads_[at(thread)];
  self.site = site;
  self.state = at_warp_operation;
  self.operation = operation;
  self.mask = mask;
  self.value = value;
  self.argument = argument;
  self.width = width;
  if ((mask & lane_bit(thread)) == 0) {
    fail(waiting(thread) + " without its own lane in the mask");
  } else {
    lanes_waiting_[warp] |= lane_bit(thread);
    const std::uint32_t named = mask & lanes_from(thread & -Scheduler::warp_size);
    const bool all_wait = (named & ~lanes_waiting_[warp]) == 0;
    if (all_wait || (named & lanes_finished_[warp]) != 0) try_release_warp(thread);
  }
  suspend();
  return self.result;
}

// Releases the lanes that `thread`'s mask names once all of them wait at the same operation.
void BlockRunner::try_release_warp(int thread) {
  const Thread& self = threads_[at(thread)];
  const int warp = thread / Scheduler::warp_size;
  const int first = warp * Scheduler::warp_size;
  const unsigned mask = self.mask & lanes_from(first);
  if (const unsigned gone = mask & lanes_finished_[at(warp)]; gone != 0) {
    return fail(waiting(thread) + " for lane " + std::to_string(__builtin_ctz(gone)) +
                " of its mask, which has returned");
  }
  if ((lanes_waiting_[at(warp)] & mask) != mask) return;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const Thread& lane = threads_[at(first + __builtin_ctz(rest))];
    const bool same = lane.site.line == self.site.line && lane.site.file == self.site.file &&
                      lane.mask == self.mask && lane.operation == self.operation;
    if (!same) return;  // if it stays so, the block ends in a deadlock that names both
  }
  lanes_waiting_[at(warp)] &= ~mask;
  exchange(first, mask);
  if (sanitizer::thread && self.operation == WarpOperation::synchronise) {
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      sanitizer::switch_to(threads_[at(first + __builtin_ctz(rest))].tsan);
      sanitizer::acquire(&warp_barrier_[at(warp)]);
    }
    sanitizer::switch_to(worker_tsan_);
  }
  scheduler_.make_runnable(warp, mask);
}

// `mask`: lanes that wait at the same operation.
void BlockRunner::exchange(int first_lane, unsigned mask) {
  Thread* const lanes = &threads_[at(first_lane)];
  const WarpOperation operation = lanes[__builtin_ctz(mask)].operation;
  if (operation == WarpOperation::synchronise) return;
  unsigned ballot = 0;
  for (unsigned rest = mask; operation == WarpOperation::ballot && rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    if (lanes[lane].value != 0) ballot |= 1u << lane;
  }
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    Thread& self = lanes[lane];
    const int base = lane & -self.width;  // a power of two
    const int end = base + self.width;
    int source = lane;
    switch (operation) {
      case WarpOperation::synchronise:
        break;
      case WarpOperation::ballot:
        self.result = ballot;
        continue;
      case WarpOperation::shuffle:
        source = base + (self.argument & (self.width - 1));
        break;
      case WarpOperation::shuffle_down:
        source = lane + self.argument < end ? lane + self.argument : lane;
        break;
      case WarpOperation::shuffle_up:
        source = lane - self.argument >= base ? lane - self.argument : lane;
        break;
      case WarpOperation::shuffle_xor:
        source = (lane ^ self.argument) < end ? lane ^ self.argument : lane;
        break;
    }
    const bool takes_part = (mask >> source & 1) != 0;
    self.result = takes_part ? lanes[source].value : ~std::uint64_t{0};
  }
}

// ---- Messages

void BlockRunner::fail(const std::string& what) {
  if (failed()) return;
  failure_ = "kernel " + std::string(launch_->kernel) + ", block " + text(block_) + ": " + what;
}

std::string BlockRunner::name(int thread) const {
  return "thread " + text(threads_[at(thread)].index);
}

std::string BlockRunner::waiting(int thread) const {
  const Thread& self = threads_[at(thread)];
  if (self.state == at_barrier) return name(thread) + " waits at the barrier of " + text(self.site);
  char mask[16];
  std::snprintf(mask, sizeof mask, "0x%08x", self.mask);
  return name(thread) + " waits at the warp operation of " + text(self.site) + " (mask " + mask +
         ")";
}

int BlockRunner::first_in(int state) const {
  const auto found = std::find_if(threads_.begin(), threads_.end(),
                                  [&](const Thread& thread) { return thread.state == state; });
  return found == threads_.end() ? Scheduler::none : static_cast<int>(found - threads_.begin());
}

std::string BlockRunner::describe_deadlock() const {
  std::string message = "no thread can go on:";
  const int lane = first_in(at_warp_operation);
  const int waiter = first_in(at_barrier);
  if (lane != Scheduler::none) {
    message += " " + waiting(lane);
    // Another lane that waits elsewhere is the usual reason.
    for (const Thread& other : threads_) {
      const Thread& self = threads_[at(lane)];
      if (other.state != at_warp_operation) continue;
      if (other.site.line == self.site.line && other.mask == self.mask) continue;
      message += ", " + waiting(static_cast<int>(&other - threads_.data()));
      break;
    }
  }
  if (waiter != Scheduler::none)
    message += (lane != Scheduler::none ? ", " : " ") + waiting(waiter);
  return message + "; " + std::to_string(finished_) + " of " + std::to_string(threads_in_block_) +
         " threads returned";
}

}  // namespace shardproof::host
