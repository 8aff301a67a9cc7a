// The child process in which a candidate runs. The parent writes a call into a page that
// both map, wakes the child and waits, no longer than the time limit.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "device/engine/candidate.h"
#include "device/engine/candidate_memory.h"

namespace shardproof {

struct CandidateControl;

// What fills a candidate's table: the library at a path, or a function of this program.
using CandidateSource = std::variant<std::string, std::function<void(shardproof_candidate_table&)>>;

// How a call ended in the child.
struct CandidateOutcome {
  enum class Kind { done, status, signal, exited, hung, threads };
  Kind kind = Kind::done;
  int status = 0;        // what the operation returned, the signal's number, or how many threads
  unsigned replica = 0;  // of a status or a signal
  std::string message;   // the candidate's, or what dlopen said
  bool memory_fault = false;
  const void* address = nullptr;  // of a memory fault
  bool in_scratch = false;        // whether that is next to the scratch
};

class CandidateProcess {
 public:
  CandidateProcess(CandidateSource source, unsigned replicas, std::chrono::milliseconds time_limit,
                   CandidateMemory& memory);
  ~CandidateProcess();
  CandidateProcess(const CandidateProcess&) = delete;
  CandidateProcess& operator=(const CandidateProcess&) = delete;

  // Starts the child and has the table filled; a status with a message when that fails.
  CandidateOutcome start();
  bool running() const { return pid_ > 0; }

  // What was filled; null entries were left out. Function pointers are the child's.
  const shardproof_candidate_table& table() const;
  const char* given_name() const;

  // Where a call is written: call structures, each at a multiple of 64, and the arrays that they
  // point to.
  char* payload();
  static constexpr std::size_t payload_bytes = std::size_t{1} << 20;

  // Runs `calls` call structures of `stride` bytes each at the start of the payload: one on the
  // child's own thread, several at once on a thread each. `writable` are the pages of the outputs.
  CandidateOutcome call(unsigned operation, unsigned calls, std::size_t stride,
                        const std::vector<PageRange>& writable);

 private:
  CandidateOutcome wait(std::uint32_t request);
  void stop();

  CandidateSource source_;
  unsigned replicas_;
  std::chrono::milliseconds time_limit_;
  CandidateMemory& memory_;
  CandidateControl* control_;
  pid_t pid_ = -1;
};

}  // namespace shardproof
