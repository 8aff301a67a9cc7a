// A candidate (candidate.h) as a device: its library runs in a child process, on memory that both
// processes map at one address, and each call is complete when it returns. What the candidate
// leaves out runs on the built-in host device, in this process, on the same memory.
//
// Whatever a candidate does wrong besides numbers is a DeviceError with one sentence: a crash, no
// return within the time limit, a write outside its outputs, a changed input, threads left behind,
// exit(), a status. The next call after a crash starts a new child.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "device/engine/builtin_device.h"
#include "device/engine/candidate_process.h"
#include "device/engine/device.h"
#include "reference/result.h"

namespace shardproof {

struct CandidateOptions {
  std::chrono::milliseconds time_limit{10'000};  // of one call, and of loading
  Schedule schedule;                             // of the built-in operations
  int workers = 1;                               // of the built-in operations
};

// Error: a library that cannot be loaded, lacks shardproof_candidate, refuses or has another
// version, has no operation at all, or ends or hangs while it is loaded.
Result<std::unique_ptr<Device>> make_candidate_device(const CandidateSource& source, int replicas,
                                                      const CandidateOptions& options = {});

// Makes devices of one candidate, on any thread. A device hands its child process on to the next
// one of as many replicas when it is destroyed. What make_candidate_device has as an error, the
// maker throws as a DeviceError. The options' schedule is not used.
std::function<std::unique_ptr<Device>(int replicas, const Schedule& schedule)> candidate_maker(
    const CandidateSource& source, const CandidateOptions& options = {});

}  // namespace shardproof
