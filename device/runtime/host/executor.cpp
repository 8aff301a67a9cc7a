#include "device/runtime/host/executor.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <numeric>

#include "device/runtime/host/block_runner.h"
#include "device/runtime/host/spares.h"

namespace shardproof::host {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool report_faults = false;  // the sanitizer does
#else
constexpr bool report_faults = true;
#endif

// Called in place of the rest of the thread that faulted.
void leave_faulting_thread() { BlockRunner::current()->leave_faulting_thread(); }

// Of a thread that a signal interrupted.
struct Registers {
#if defined(__x86_64__)
  greg_t& stack_pointer;
  greg_t& next_instruction;
  explicit Registers(ucontext_t& context)
      : stack_pointer(context.uc_mcontext.gregs[REG_RSP]),
        next_instruction(context.uc_mcontext.gregs[REG_RIP]) {}
  // As after a call, below what the interrupted function may use unasked.
  void call(void (*function)()) {
    stack_pointer = ((stack_pointer - 128) & ~greg_t{15}) - 8;
    next_instruction = reinterpret_cast<greg_t>(function);
  }
#elif defined(__aarch64__)
  unsigned long long& stack_pointer;
  unsigned long long& next_instruction;
  explicit Registers(ucontext_t& context)
      : stack_pointer(context.uc_mcontext.sp), next_instruction(context.uc_mcontext.pc) {}
  void call(void (*function)()) {
    stack_pointer &= ~15ULL;
    next_instruction = reinterpret_cast<std::uintptr_t>(function);
  }
#else
#error "say here how a thread goes on in another function on this processor"
#endif
};

// A fault in kernel text makes its launch fail; a stack overflow ends the process with one line,
// since nothing can run on that stack. Any other fault takes its usual course.
void report_fault(int signal_number, siginfo_t* information, void* context) {
  BlockRunner* const runner = BlockRunner::current();
  if (runner == nullptr) {
    signal(signal_number, SIG_DFL);
    return;
  }
  Registers registers(*static_cast<ucontext_t*>(context));
  const bool overflow =
      runner->is_out_of_stack(static_cast<std::uintptr_t>(registers.stack_pointer));
  char where[200];
  if (!runner->runtime().memory().describe(information->si_addr, where, sizeof where)) {
    std::snprintf(where, sizeof where, "%p, outside every allocation (%s)", information->si_addr,
                  overflow ? "stack overflow" : "shared memory overrun?");
  }
  if (!overflow) {
    runner->note_fault(where);
    registers.call(leave_faulting_thread);
    return;
  }
  char who[400];
  char line[700];
  runner->describe_current(who, sizeof who);
  const int length = std::snprintf(line, sizeof line, "%s: out-of-bounds access, %s\n", who, where);
  static_cast<void>(!write(STDERR_FILENO, line, static_cast<std::size_t>(length)));
  _exit(out_of_bounds_exit_code);
}

// The handler needs a stack of its own, since a fiber's may have overflowed. One an OS thread.
class SignalStack {
 public:
  SignalStack() {
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = sizeof memory_;
    sigaltstack(&stack, &previous_);
  }
  ~SignalStack() { sigaltstack(&previous_, nullptr); }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  stack_t previous_{};
  char memory_[32 * 1024];
};

void install_fault_report() {
  if constexpr (report_faults) {
    struct sigaction action {};
    action.sa_sigaction = report_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
  }
}

void check(const Launch& launch) {
  const auto refuse = [&](const std::string& what) {
    throw LaunchError("kernel " + std::string(launch.kernel) + ": " + what);
  };
  const dim3& grid = launch.grid;
  const dim3& block = launch.block;
  if (block.count() == 0 || block.count() > Scheduler::max_threads || block.z > 64) {
    refuse("a block of " + std::to_string(block.count()) + " threads, CUDA allows 1 to 1024");
  }
  if (grid.count() == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    refuse("a grid of " + std::to_string(grid.x) + "×" + std::to_string(grid.y) + "×" +
           std::to_string(grid.z) + " blocks, CUDA allows 1 to 2147483647×65535×65535");
  }
  if (launch.shared_bytes > max_shared_bytes) {
    refuse(std::to_string(launch.shared_bytes) + " bytes of shared memory, at most " +
           std::to_string(max_shared_bytes));
  }
}

// Under a seed blocks start in an order of their own: multiples of a number coprime to the count.
std::uint64_t block_step(std::uint64_t seed, std::uint64_t blocks) {
  if (seed == 0) return 1;
  std::uint64_t step = (seed * 2654435761u) % blocks | 1;
  while (std::gcd(step, blocks) != 1) step += 2;
  return step;
}

// With the stacks of their fibers.
thread_local Spares<std::unique_ptr<BlockRunner>, 4> spare_runners;

}  // namespace

Runtime::Runtime(std::uint64_t seed, int workers) : seed_(seed), pool_(workers) {
  for (int worker = 0; worker < workers; ++worker) {
    auto runner = spare_runners.take();
    runners_.push_back(runner ? *std::move(runner) : std::make_unique<BlockRunner>());
    runners_.back()->serve(*this);
  }
  install_fault_report();
}

Runtime::~Runtime() {
  for (std::unique_ptr<BlockRunner>& runner : runners_) spare_runners.give(runner);
}

void Runtime::run(const Launch& launch) {
  check(launch);
  const dim3& grid = launch.grid;
  const std::uint64_t blocks = grid.count();
  const std::uint64_t step = block_step(seed_, blocks);
  pool_.run(blocks, [&](int worker, std::uint64_t item) {
    if constexpr (report_faults) static thread_local SignalStack signal_stack;
    const auto block =
        static_cast<std::uint64_t>(static_cast<unsigned __int128>(item) * step % blocks);
    const uint3 index{static_cast<unsigned>(block % grid.x),
                      static_cast<unsigned>(block / grid.x % grid.y),
                      static_cast<unsigned>(block / grid.x / grid.y)};
    runners_[static_cast<std::size_t>(worker)]->run(launch, index);
  });
}

}  // namespace shardproof::host
