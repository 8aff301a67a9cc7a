// Runs the blocks of a launch on the OS thread that calls it, one after another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/runtime/host/executor.h"
#include "device/runtime/host/scheduler.h"

namespace shardproof::host {

// Where in kernel text a thread stands.
struct Site {
  const char* file;
  unsigned line;
  static constexpr Site here(const char* file = __builtin_FILE(),
                             unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

enum class WarpOperation { synchronise, shuffle, shuffle_down, shuffle_up, shuffle_xor, ballot };

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Whose launches it runs from now on. Nothing of those before shows.
  void serve(const Runtime& runtime) { runtime_ = &runtime; }

  // The one that runs a kernel on this OS thread, or null.
  static BlockRunner* current() { return current_; }

  // Throws LaunchError.
  void run(const Launch& launch, uint3 block);

  // The calls below are made by kernel text.
  void block_barrier(Site site);
  // `argument` is the source lane, distance or lane mask. A lane that reads from one outside its
  // mask gets all bits set (NaN); on a GPU the value is undefined.
  std::uint64_t warp_operation(WarpOperation operation, unsigned mask, std::uint64_t value,
                               int argument, int width, Site site);
  void* shared_memory() const { return shared_; }

  // For the fault handler, which makes no memory. "kernel NAME, block (x,y,z), thread (x,y,z)": who
  // runs now.
  void describe_current(char* text, std::size_t size) const;
  // Whether a thread with that stack pointer has no room left to run anything.
  bool is_out_of_stack(std::uintptr_t stack_pointer) const;
  // What the thread that runs did, told when the launch is left.
  void note_fault(const char* what);
  // Leaves the launch of the thread that runs, which fails with what was noted.
  [[noreturn]] void leave_faulting_thread();
  const Runtime& runtime() const { return *runtime_; }

 private:
  static inline thread_local BlockRunner* current_ = nullptr;

  struct Fiber;
  struct Thread;
  class ResetCurrent;

  void begin_launch(const Launch& launch);
  void place_shared_memory(std::size_t bytes);
  void begin_block(uint3 block);
  void fiber_main();
  Fiber* take_fiber();
  void jump(Fiber* to);
  void leave_to_worker();
  void after_jump(Fiber* self);
  void release_unfinished();
  void abandon_fibers();

  void run_thread(int thread);
  void finish_thread(int thread);
  void suspend();
  void try_release_block();
  void try_release_warp(int thread);
  void exchange(int first_lane, unsigned mask);
  std::uint32_t lanes_from(int first) const;

  void fail(const std::string& what);
  bool failed() const { return !failure_.empty(); }
  std::string name(int thread) const;
  std::string waiting(int thread) const;
  std::string describe_deadlock() const;
  int first_in(int state) const;

  const Runtime* runtime_ = nullptr;
  const Launch* launch_ = nullptr;
  uint3 block_{};
  dim3 shape_{0, 0, 0};
  int threads_in_block_ = 0;
  std::string failure_;
  std::array<char, 256> fault_{};

  Scheduler scheduler_;
  std::vector<Thread> threads_;
  int running_ = 0;
  int finished_ = 0;
  int at_barrier_ = 0;
  Site barrier_site_{};
  std::array<std::uint32_t, Scheduler::max_warps> lanes_waiting_{};
  std::array<std::uint32_t, Scheduler::max_warps> lanes_finished_{};

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
  std::vector<Fiber*> retired_fibers_;
  Fiber* current_fiber_ = nullptr;
  void* worker_context_ = nullptr;

  char* shared_mapping_ = nullptr;
  std::size_t shared_bytes_ = 0;
  char* shared_ = nullptr;

  // For the sanitizers.
  void* worker_fake_stack_ = nullptr;
  const void* worker_stack_ = nullptr;
  std::size_t worker_stack_bytes_ = 0;
  void* worker_tsan_ = nullptr;
  std::vector<void*> tsan_fibers_;
  char block_start_ = 0, block_end_ = 0, barrier_ = 0;
  std::array<char, Scheduler::max_warps> warp_barrier_{};
};

}  // namespace shardproof::host
