#include "device/engine/candidate_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "device/runtime/device_error.h"

namespace shardproof {

namespace {

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, long nanoseconds) {
  const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// A number that one process sets and the other waits for.
struct Bell {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> asleep;

  void ring(std::uint32_t next) {
    value.store(next);
    if (asleep.load() != 0) futex_wake(value);
  }

  // Spins for some ten microseconds, then sleeps; returns after `nanoseconds` at the latest.
  bool wait_for(std::uint32_t wanted, long nanoseconds) {
    for (int spin = 0; spin < 300; ++spin) {
      if (value.load(std::memory_order_acquire) == wanted) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    asleep.store(1);
    const std::uint32_t seen = value.load();
    if (seen != wanted) futex_wait(value, seen, nanoseconds);
    asleep.store(0);
    return value.load() == wanted;
  }
};

}  // namespace

struct CandidateControl {
  static constexpr std::size_t most_ranges = 4096;

  alignas(64) Bell request;
  alignas(64) Bell reply;
  unsigned operation, calls;
  std::size_t stride;
  std::size_t changes, writable;
  PageRange ranges[most_ranges];  // changes, then what this call may write

  CandidateOutcome::Kind kind;
  int status;
  unsigned replica;
  bool memory_fault;
  const void* address;
  bool in_scratch;
  char message[1024];
  char name[256];
  shardproof_candidate_table table;
  alignas(64) char payload[CandidateProcess::payload_bytes];
};

namespace {

// --- in the child -------------------------------------------------------------------------------

// What a signal handler has to know of the process that it runs in, which has one candidate.
CandidateControl* child_control = nullptr;
thread_local const char* child_scratch = nullptr;
thread_local std::size_t child_scratch_bytes = 0;
thread_local unsigned child_replica = 0;

void answer(CandidateOutcome::Kind kind, int status, unsigned replica) {
  child_control->kind = kind;
  child_control->status = status;
  child_control->replica = replica;
  child_control->reply.ring(child_control->request.value.load());
}

void on_signal(int signal, siginfo_t* info, void*) {
  const bool memory_fault = signal == SIGSEGV || signal == SIGBUS;
  const auto* address = static_cast<const char*>(info->si_addr);
  child_control->memory_fault = memory_fault;
  child_control->address = address;
  child_control->in_scratch = memory_fault && child_scratch != nullptr &&
                              address + 4096 >= child_scratch &&
                              address < child_scratch + child_scratch_bytes + 8192;
  answer(CandidateOutcome::Kind::signal, signal, child_replica);
  _exit(1);
}

void on_exit_called() {
  answer(CandidateOutcome::Kind::exited, 0, child_replica);
  _exit(1);
}

void use_signal_stack() {
  constexpr std::size_t bytes = 65536;
  stack_t stack{};
  stack.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack.ss_size = bytes;
  sigaltstack(&stack, nullptr);
}

void catch_signals() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    sigaction(signal, &action, nullptr);
}

// Threads of this process, this one too.
unsigned thread_count() {
  struct stat tasks {};
  if (stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink < 3) return 1;
  return static_cast<unsigned>(tasks.st_nlink - 2);
}

// Scratch that ends at a page that cannot be touched.
class Scratch {
 public:
  char* get(std::size_t bytes) {
    const std::size_t padded = (bytes + 63) / 64 * 64;
    const std::size_t mapped = (padded + 4095) / 4096 * 4096;
    if (mapped != mapped_) {
      if (pages_ != nullptr) munmap(pages_, mapped_ + 8192);
      pages_ = static_cast<char*>(
          mmap(nullptr, mapped + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      mapped_ = mapped;
      mprotect(pages_ + 4096, mapped, PROT_READ | PROT_WRITE);
    }
    std::memset(pages_ + 4096, 0xff, mapped);
    return pages_ + 4096 + mapped - padded;
  }
  // Whether the slack around `bytes` at `start` is untouched.
  bool whole(const char* start, std::size_t bytes) const {
    const auto untouched = [](char byte) { return byte == '\xff'; };
    return std::all_of(static_cast<const char*>(pages_) + 4096, start, untouched) &&
           std::all_of(start + bytes, static_cast<const char*>(pages_) + 4096 + mapped_, untouched);
  }

 private:
  char* pages_ = nullptr;
  std::size_t mapped_ = 0;
};

// Joins the replicas' threads of one collective call.
class Meeting {
 public:
  explicit Meeting(unsigned replicas) : replicas_(replicas), data_(replicas) {
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&changed_, nullptr);
  }
  void begin() {
    given_up_ = false;
    waiting_ = 0;
  }
  int barrier() {
    pthread_mutex_lock(&mutex_);
    const unsigned turn = turn_;
    if (++waiting_ == replicas_) {
      waiting_ = 0;
      ++turn_;
      pthread_cond_broadcast(&changed_);
    }
    while (turn == turn_ && !given_up_) pthread_cond_wait(&changed_, &mutex_);
    const int result = turn == turn_ ? 1 : 0;
    pthread_mutex_unlock(&mutex_);
    return result;
  }
  void give_up() {
    pthread_mutex_lock(&mutex_);
    given_up_ = true;
    pthread_cond_broadcast(&changed_);
    pthread_mutex_unlock(&mutex_);
  }
  int all_reduce_sum(unsigned replica, float* data, std::uint64_t count) {
    data_[replica] = data;
    if (barrier() != 0) return 1;
    std::vector<float> sum(count);
    for (const float* values : data_)
      for (std::uint64_t i = 0; i < count; ++i) sum[i] += values[i];
    if (barrier() != 0) return 1;
    std::copy(sum.begin(), sum.end(), data);
    return barrier();
  }

 private:
  unsigned replicas_;
  pthread_mutex_t mutex_;
  pthread_cond_t changed_;
  unsigned waiting_ = 0, turn_ = 0;
  bool given_up_ = false;
  std::vector<float*> data_;
};

struct Seat {
  Meeting* meeting;
  unsigned replica;
};

int seat_barrier(const shardproof_collective* collective) {
  return static_cast<Seat*>(collective->state)->meeting->barrier();
}
int seat_all_reduce(const shardproof_collective* collective, float* data, std::uint64_t count) {
  const auto* seat = static_cast<Seat*>(collective->state);
  return seat->meeting->all_reduce_sum(seat->replica, data, count);
}

template <class Call>
int run(int (*function)(const Call*), const void* call) {
  return function(static_cast<const Call*>(call));
}

int run_operation(const shardproof_candidate_table& table, unsigned operation, const void* call) {
  switch (operation) {
    case SHARDPROOF_CHANNEL_MEAN:
      return run(table.channel_mean, call);
    case SHARDPROOF_CHANNEL_VARIANCE:
      return run(table.channel_variance, call);
    case SHARDPROOF_NORMALISE:
      return run(table.normalise, call);
    case SHARDPROOF_SYNC_BATCH_NORM:
      return run(table.sync_batch_norm, call);
    case SHARDPROOF_RUNNING_STATISTICS:
      return run(table.running_statistics, call);
    case SHARDPROOF_CONVOLUTION:
      return run(table.convolution, call);
    case SHARDPROOF_DEPTHWISE:
      return run(table.depthwise, call);
    case SHARDPROOF_RELU:
      return run(table.relu, call);
    case SHARDPROOF_GLOBAL_AVERAGE_POOL:
      return run(table.global_average_pool, call);
    case SHARDPROOF_DENSE:
      return run(table.dense, call);
    case SHARDPROOF_ADD:
      return run(table.add, call);
    case SHARDPROOF_ALL_REDUCE_MEAN:
      return run(table.all_reduce_mean, call);
    case SHARDPROOF_ALL_REDUCE_SUM:
      return run(table.all_reduce_sum, call);
    case SHARDPROOF_REDUCE_SCATTER_MEAN:
      return run(table.reduce_scatter_mean, call);
    case SHARDPROOF_ALL_GATHER:
      return run(table.all_gather, call);
    case SHARDPROOF_BROADCAST:
      return run(table.broadcast, call);
    case SHARDPROOF_SHARD:
      return run(table.shard, call);
    case SHARDPROOF_UNSHARD:
      return run(table.unshard, call);
    default:
      return run(table.owned_step, call);
  }
}

class Child {
 public:
  Child(CandidateControl& control, const CandidateSource& source, unsigned replicas)
      : control_(control),
        source_(source),
        meeting_(replicas),
        seats_(replicas),
        scratch_(replicas) {
    for (unsigned r = 0; r < replicas; ++r) seats_[r] = {&meeting_, r};
  }

  [[noreturn]] void live(pid_t parent) {
    load();
    for (unsigned r = 1; r < seats_.size(); ++r) std::thread([this, r] { serve(r); }).detach();
    threads_ = thread_count() + control_.table.threads_kept;
    std::uint32_t served = control_.request.value.load();
    answer(CandidateOutcome::Kind::done, 0, 0);
    for (;;) {
      if (!control_.request.wait_for(served + 1, 1'000'000'000)) {
        if (getppid() != parent) _exit(0);
        continue;
      }
      ++served;
      serve_request();
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) {
    std::strncpy(control_.message, why.c_str(), sizeof control_.message - 1);
    answer(CandidateOutcome::Kind::status, -1, 0);
    _exit(1);
  }

  void load() {
    control_.table = {};
    control_.table.size = sizeof(shardproof_candidate_table);
    if (const auto* path = std::get_if<std::string>(&source_)) {
      load_library(*path);
    } else {
      std::get<1>(source_)(control_.table);
    }
    if (control_.table.name != nullptr)
      std::strncpy(control_.name, control_.table.name, sizeof control_.name - 1);
  }

  void load_library(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) refuse(std::string("cannot be loaded: ") + dlerror());
    void* symbol = dlsym(library, "shardproof_candidate");
    if (symbol == nullptr)
      refuse("exports no shardproof_candidate; it must define the function of candidate.h as C");
    const int status = reinterpret_cast<decltype(&shardproof_candidate)>(symbol)(
        SHARDPROOF_CANDIDATE_VERSION, &control_.table);
    if (status != 0)
      refuse("refused version " + std::to_string(SHARDPROOF_CANDIDATE_VERSION) +
             " of candidate.h with status " + std::to_string(status));
    if (control_.table.version != SHARDPROOF_CANDIDATE_VERSION)
      refuse("was built for version " + std::to_string(control_.table.version) +
             " of candidate.h, but this program has version " +
             std::to_string(SHARDPROOF_CANDIDATE_VERSION) + "; build it with this one");
  }

  void serve_request() {
    const std::vector<PageRange> wanted(control_.ranges + control_.changes,
                                        control_.ranges + control_.changes + control_.writable);
    const auto among = [](const PageRange& range, const std::vector<PageRange>& ranges) {
      return std::any_of(ranges.begin(), ranges.end(),
                         [&](const PageRange& other) { return other.start == range.start; });
    };
    for (const PageRange& range : open_)
      if (!among(range, wanted)) protect(range, PROT_READ);
    for (std::size_t i = 0; i < control_.changes; ++i) {
      protect(control_.ranges[i], control_.ranges[i].protection);
      std::erase_if(
          open_, [&](const PageRange& range) { return range.start == control_.ranges[i].start; });
    }
    for (const PageRange& range : wanted)
      if (!among(range, open_)) protect(range, range.protection);
    open_ = wanted;
    if (control_.calls == 0) return answer(CandidateOutcome::Kind::done, 0, 0);
    failed_.store(-1);
    meeting_.begin();
    if (control_.calls > 1) {
      at_work_.store(control_.calls - 1);
      round_.fetch_add(1);
      futex_wake(round_);
    }
    run_one(0);
    if (control_.calls > 1)
      for (std::uint32_t left; (left = at_work_.load()) != 0;)
        futex_wait(at_work_, left, 1'000'000'000);
    const int failed = failed_.load();
    if (failed >= 0)
      return answer(CandidateOutcome::Kind::status, status_, static_cast<unsigned>(failed));
    unsigned left = thread_count();
    // A thread that was joined stays listed for a moment.
    for (int wait = 0; left > threads_ && wait < 50; ++wait) {
      usleep(1000);
      left = thread_count();
    }
    if (left > threads_)
      return answer(CandidateOutcome::Kind::threads, static_cast<int>(left - threads_), 0);
    answer(CandidateOutcome::Kind::done, 0, 0);
  }

  static void protect(const PageRange& range, int protection) {
    mprotect(range.start, range.bytes, protection);
  }

  // A replica's own thread, for calls that all replicas make at once.
  [[noreturn]] void serve(unsigned replica) {
    child_replica = replica;
    use_signal_stack();
    std::uint32_t seen = 0;
    for (;;) {
      while (round_.load() == seen) futex_wait(round_, seen, 1'000'000'000);
      ++seen;
      if (replica >= control_.calls) continue;
      run_one(replica);
      if (at_work_.fetch_sub(1) == 1) futex_wake(at_work_);
    }
  }

  void run_one(unsigned index) {
    char* call = control_.payload + index * control_.stride;
    auto* header = reinterpret_cast<shardproof_header*>(call);
    child_replica = header->replica;
    char message[sizeof control_.message] = "";
    header->message = message;
    header->message_bytes = sizeof message;
    const shardproof_collective collective{sizeof collective, &seats_[index], seat_barrier,
                                           seat_all_reduce};
    header->collective = control_.calls > 1 || is_collective() ? &collective : nullptr;
    const std::uint64_t bytes = control_.table.scratch_bytes == nullptr
                                    ? 0
                                    : control_.table.scratch_bytes(control_.operation, call);
    char* scratch = bytes == 0 ? nullptr : scratch_[index].get(bytes);
    header->scratch = scratch;
    header->scratch_bytes = bytes;
    child_scratch = scratch;
    child_scratch_bytes = bytes;
    int status = run_operation(control_.table, control_.operation, call);
    if (status == 0 && scratch != nullptr && !scratch_[index].whole(scratch, bytes)) {
      status = -1;
      std::strcpy(message, "it wrote outside its scratch");
    }
    if (status == 0) return;
    int nobody = -1;
    if (failed_.compare_exchange_strong(nobody, static_cast<int>(header->replica))) {
      status_ = status;
      message[sizeof message - 1] = 0;
      std::memcpy(control_.message, message, sizeof message);
    }
    meeting_.give_up();
  }

  bool is_collective() const {
    return control_.operation == SHARDPROOF_SYNC_BATCH_NORM ||
           (control_.operation >= SHARDPROOF_ALL_REDUCE_MEAN &&
            control_.operation <= SHARDPROOF_UNSHARD);
  }

  CandidateControl& control_;
  const CandidateSource& source_;
  Meeting meeting_;
  std::vector<Seat> seats_;
  std::vector<Scratch> scratch_;
  std::vector<PageRange> open_;  // what the call before could write, and nobody has closed
  unsigned threads_ = 0;         // that may be there after a call
  std::atomic<std::uint32_t> round_{0}, at_work_{0};
  std::atomic<int> failed_{-1};
  int status_ = 0;
};

}  // namespace

CandidateProcess::CandidateProcess(CandidateSource source, unsigned replicas,
                                   std::chrono::milliseconds time_limit, CandidateMemory& memory)
    : source_(std::move(source)), replicas_(replicas), time_limit_(time_limit), memory_(memory) {
  void* shared = mmap(nullptr, sizeof(CandidateControl), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw OutOfDeviceMemory("no room for a candidate's calls");
  control_ = static_cast<CandidateControl*>(shared);
}

CandidateProcess::~CandidateProcess() {
  stop();
  munmap(control_, sizeof(CandidateControl));
}

const shardproof_candidate_table& CandidateProcess::table() const { return control_->table; }
const char* CandidateProcess::given_name() const { return control_->name; }
char* CandidateProcess::payload() { return control_->payload; }

CandidateOutcome CandidateProcess::start() {
  memory_.take_changes();
  const std::uint32_t request = control_->request.value.load() + 1;
  control_->request.value.store(request);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw DeviceError("a process for the candidate cannot be started");
  if (pid_ == 0) {
    const int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, STDIN_FILENO);
    dup2(nowhere, STDOUT_FILENO);
    child_control = control_;
    use_signal_stack();
    catch_signals();
    std::atexit(on_exit_called);
    memory_.enter_child();
    Child(*control_, source_, replicas_).live(parent);
  }
  CandidateOutcome outcome = wait(request);
  if (outcome.kind != CandidateOutcome::Kind::done) stop();
  return outcome;
}

CandidateOutcome CandidateProcess::call(unsigned operation, unsigned calls, std::size_t stride,
                                        const std::vector<PageRange>& writable) {
  const std::vector<PageRange> changes = memory_.take_changes();
  if (writable.size() > CandidateControl::most_ranges)
    throw DeviceError("a call has more outputs than a candidate's call can name");
  std::size_t told = 0;
  CandidateOutcome outcome;
  for (bool last = false; !last;) {
    const std::size_t room = CandidateControl::most_ranges - writable.size();
    std::size_t now = std::min(changes.size() - told, CandidateControl::most_ranges);
    last = told + now == changes.size() && now <= room;
    std::copy_n(changes.begin() + static_cast<std::ptrdiff_t>(told), now, control_->ranges);
    told += now;
    control_->changes = now;
    control_->writable = 0;
    control_->calls = 0;
    if (last) {
      std::copy(writable.begin(), writable.end(), control_->ranges + now);
      control_->writable = writable.size();
      control_->operation = operation;
      control_->calls = calls;
      control_->stride = stride;
    }
    const std::uint32_t request = control_->request.value.load() + 1;
    control_->request.ring(request);
    outcome = wait(request);
    if (outcome.kind != CandidateOutcome::Kind::done) return outcome;
  }
  return outcome;
}

CandidateOutcome CandidateProcess::wait(std::uint32_t request) {
  const auto deadline = std::chrono::steady_clock::now() + time_limit_;
  while (!control_->reply.wait_for(request, 20'000'000)) {
    int how = 0;
    if (waitpid(pid_, &how, WNOHANG) == pid_) {
      pid_ = -1;
      if (control_->reply.value.load() == request) break;
      CandidateOutcome outcome;
      outcome.kind =
          WIFSIGNALED(how) ? CandidateOutcome::Kind::signal : CandidateOutcome::Kind::exited;
      outcome.status = WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how);
      return outcome;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      stop();
      CandidateOutcome outcome;
      outcome.kind = CandidateOutcome::Kind::hung;
      return outcome;
    }
  }
  CandidateOutcome outcome;
  outcome.kind = control_->kind;
  outcome.status = control_->status;
  outcome.replica = control_->replica;
  if (outcome.kind == CandidateOutcome::Kind::signal) {
    outcome.memory_fault = control_->memory_fault;
    outcome.address = control_->address;
    outcome.in_scratch = control_->in_scratch;
  }
  if (outcome.kind == CandidateOutcome::Kind::status)
    outcome.message.assign(control_->message, strnlen(control_->message, sizeof control_->message));
  if (outcome.kind == CandidateOutcome::Kind::signal ||
      outcome.kind == CandidateOutcome::Kind::exited ||
      outcome.kind == CandidateOutcome::Kind::threads)
    stop();
  return outcome;
}

void CandidateProcess::stop() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace shardproof
