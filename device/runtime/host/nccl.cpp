#include "device/runtime/host/nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/runtime/host/reduction.h"

namespace shardproof::host {
namespace {

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast };

// One rank's part in a collective.
struct Call {
  Kind kind;
  const void* send;
  void* receive;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t operation;
  int root;
  std::uint64_t seed;

  bool agrees_with(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type &&
           operation == other.operation && root == other.root;
  }
};

std::string describe(const Call& call) {
  constexpr std::array kinds{"ncclAllReduce", "ncclReduceScatter", "ncclAllGather",
                             "ncclBroadcast"};
  constexpr std::array types{"int8",   "uint8",   "int32",   "uint32",  "int64",
                             "uint64", "float16", "float32", "float64", "bfloat16"};
  constexpr std::array operations{"sum", "prod", "max", "min", "avg"};
  std::string text = kinds[static_cast<std::size_t>(call.kind)];
  text += " of " + std::to_string(call.count) + " " + types[static_cast<std::size_t>(call.type)];
  if (call.kind == Kind::broadcast) return text + " from rank " + std::to_string(call.root);
  if (call.kind == Kind::all_gather) return text;
  return text + ", " + operations[static_cast<std::size_t>(call.operation)];
}

struct Outcome {
  bool done = false;
  ncclResult_t result = ncclSuccess;
  std::string message;
};

// The ranks of one communicator, and the calls that wait for the other ranks to make theirs.
class Clique {
 public:
  Clique(int ranks, bool one_owner)
      : one_owner_(one_owner), joined_(static_cast<std::size_t>(ranks)), waiting_(joined_.size()) {}

  int ranks() const { return static_cast<int>(joined_.size()); }
  bool one_owner() const { return one_owner_; }

  bool join(int rank) {
    const std::lock_guard lock(mutex_);
    const auto place = static_cast<std::size_t>(rank);
    if (joined_[place]) return false;
    return joined_[place] = true;
  }

  // The last rank to call does the work for all.
  void post(int rank, const Call& call, Outcome& outcome) {
    const std::lock_guard lock(mutex_);
    waiting_[static_cast<std::size_t>(rank)].push_back({call, &outcome});
    const bool all_here = std::none_of(waiting_.begin(), waiting_.end(),
                                       [](const auto& calls) { return calls.empty(); });
    if (!all_here) return;
    std::vector<Call> calls;
    std::vector<Outcome*> outcomes;
    for (auto& of_rank : waiting_) {
      calls.push_back(of_rank.front().first);
      outcomes.push_back(of_rank.front().second);
      of_rank.pop_front();
    }
    const std::string disagreement = find_disagreement(calls);
    if (disagreement.empty()) perform(calls);
    for (Outcome* each : outcomes) {
      each->message = disagreement;
      each->result = disagreement.empty() ? ncclSuccess : ncclInvalidArgument;
      each->done = true;
    }
    call_done_.notify_all();
  }

  void wait(const Outcome& outcome) {
    std::unique_lock lock(mutex_);
    call_done_.wait(lock, [&] { return outcome.done; });
  }

 private:
  static std::string find_disagreement(const std::vector<Call>& calls) {
    for (std::size_t rank = 1; rank < calls.size(); ++rank) {
      if (!calls[rank].agrees_with(calls[0])) {
        return "rank " + std::to_string(rank) + " calls " + describe(calls[rank]) +
               " where rank 0 calls " + describe(calls[0]);
      }
    }
    return "";
  }

  void perform(const std::vector<Call>& calls) const {
    const Call& first = calls[0];
    const std::size_t part = first.count * size_of(first.type);
    std::vector<const void*> sent;
    for (const Call& call : calls) sent.push_back(call.send);
    std::vector<char> result;
    switch (first.kind) {
      case Kind::all_reduce:
      case Kind::broadcast:
        result = first.kind == Kind::broadcast
                     ? copy(calls[static_cast<std::size_t>(first.root)].send, part)
                     : reduce(sent, first.count, first.type, first.operation, first.seed);
        for (const Call& call : calls) give(result.data(), part, call);
        break;
      case Kind::reduce_scatter:
        result = reduce(sent, first.count * calls.size(), first.type, first.operation, first.seed);
        for (std::size_t rank = 0; rank < calls.size(); ++rank) {
          give(result.data() + rank * part, part, calls[rank]);
        }
        break;
      case Kind::all_gather:
        result.reserve(part * calls.size());
        for (const Call& call : calls) {
          const std::vector<char> own = copy(call.send, part);
          result.insert(result.end(), own.begin(), own.end());
        }
        for (const Call& call : calls) give(result.data(), result.size(), call);
        break;
    }
  }

  static std::vector<char> copy(const void* from, std::size_t bytes) {
    const char* const start = static_cast<const char*>(from);
    return {start, start + bytes};
  }

  static void give(const char* from, std::size_t bytes, const Call& call) {
    if (bytes > 0) std::memcpy(call.receive, from, bytes);
  }

  const bool one_owner_;  // made by ncclCommInitAll
  std::mutex mutex_;
  std::condition_variable call_done_;
  std::vector<bool> joined_;
  std::vector<std::deque<std::pair<Call, Outcome*>>> waiting_;  // one queue a rank
};

// A clique whose ranks join one by one. Lives until the last has.
struct Meeting {
  std::mutex mutex;
  std::shared_ptr<Clique> clique;
  int joined = 0;
};

}  // namespace

struct Communicator {
  std::shared_ptr<Clique> clique;
  int rank;
  std::string last_error;
};

namespace {

struct GroupedCall {
  ncclComm_t communicator;
  Call call;
};

// NCCL's groups are a state of the calling thread.
struct Group {
  int depth = 0;
  ncclResult_t failure = ncclSuccess;
  std::vector<GroupedCall> calls;
};

thread_local Group group;
thread_local std::string thread_error;

ncclResult_t fail(ncclComm_t communicator, ncclResult_t result, const std::string& message) {
  thread_error = message;
  if (communicator != nullptr) communicator->last_error = message;
  if (group.depth > 0 && group.failure == ncclSuccess) group.failure = result;
  return result;
}

// With ncclCommInitAll one thread may drive one rank, or all of them alike.
ncclResult_t check_ranks_of_group(const std::vector<GroupedCall>& calls) {
  for (const GroupedCall& grouped : calls) {
    const Clique& clique = *grouped.communicator->clique;
    if (!clique.one_owner()) continue;
    std::vector<int> made(static_cast<std::size_t>(clique.ranks()), 0);
    for (const GroupedCall& other : calls) {
      if (other.communicator->clique.get() != &clique) continue;
      ++made[static_cast<std::size_t>(other.communicator->rank)];
    }
    if (made.size() - static_cast<std::size_t>(std::count(made.begin(), made.end(), 0)) < 2) {
      continue;
    }
    const auto most = std::max_element(made.begin(), made.end());
    const auto least = std::min_element(made.begin(), made.end());
    if (*most == *least) continue;
    return fail(grouped.communicator, ncclInvalidUsage,
                "rank " + std::to_string(least - made.begin()) + " makes " +
                    std::to_string(*least) + " calls in this group, rank " +
                    std::to_string(most - made.begin()) + " makes " + std::to_string(*most));
  }
  return ncclSuccess;
}

ncclResult_t run_calls(const std::vector<GroupedCall>& calls) {
  if (const ncclResult_t result = check_ranks_of_group(calls); result != ncclSuccess) return result;
  std::deque<Outcome> outcomes;
  for (const GroupedCall& grouped : calls) {
    const ncclComm_t communicator = grouped.communicator;
    communicator->clique->post(communicator->rank, grouped.call, outcomes.emplace_back());
  }
  ncclResult_t result = ncclSuccess;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].communicator->clique->wait(outcomes[i]);
    if (outcomes[i].result == ncclSuccess) continue;
    fail(calls[i].communicator, outcomes[i].result, outcomes[i].message);
    if (result == ncclSuccess) result = outcomes[i].result;
  }
  return result;
}

ncclResult_t submit(ncclComm_t communicator, const Call& call, Stream stream) {
  const auto refuse = [&](const std::string& message) {
    return fail(communicator, ncclInvalidArgument, message);
  };
  if (communicator == nullptr) return refuse("the communicator is null");
  if (stream.runtime == nullptr) return refuse("the stream is null");
  if (size_of(call.type) == 0) return refuse("there is no such data type");
  if (call.operation < ncclSum || call.operation > ncclAvg) {
    return refuse("there is no such reduction");
  }
  const Clique& clique = *communicator->clique;
  if (call.root < 0 || call.root >= clique.ranks()) {
    return refuse("root " + std::to_string(call.root) + " is not one of " +
                  std::to_string(clique.ranks()) + " ranks");
  }
  const bool sends = call.kind != Kind::broadcast || call.root == communicator->rank;
  if (call.count > 0 && sends && call.send == nullptr) return refuse("the send buffer is null");
  if (call.count > 0 && call.receive == nullptr) return refuse("the receive buffer is null");
  Call seeded = call;
  seeded.seed = stream.runtime->seed();
  if (group.depth > 0) {
    group.calls.push_back({communicator, seeded});
    return ncclSuccess;
  }
  return run_calls({{communicator, seeded}});
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t communicator) {
  return communicator != nullptr ? communicator->last_error.c_str() : thread_error.c_str();
}

ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int ranks, const int*) {
  if (communicators == nullptr)
    return fail(nullptr, ncclInvalidArgument, "no place for the result");
  if (ranks < 1) return fail(nullptr, ncclInvalidArgument, "a communicator needs a rank");
  const auto clique = std::make_shared<Clique>(ranks, true);
  for (int rank = 0; rank < ranks; ++rank) communicators[rank] = new Communicator{clique, rank, ""};
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return fail(nullptr, ncclInvalidArgument, "no place for the id");
  Meeting* const meeting = new Meeting;
  id->internal.fill(0);
  std::memcpy(id->internal.data(), &meeting, sizeof meeting);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  if (communicator == nullptr) return fail(nullptr, ncclInvalidArgument, "no place for the result");
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return fail(nullptr, ncclInvalidArgument,
                "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  }
  Meeting* meeting;
  std::memcpy(&meeting, id.internal.data(), sizeof meeting);
  bool last;
  {
    const std::lock_guard lock(meeting->mutex);
    if (!meeting->clique) meeting->clique = std::make_shared<Clique>(ranks, false);
    if (meeting->clique->ranks() != ranks) {
      return fail(nullptr, ncclInvalidArgument,
                  "rank " + std::to_string(rank) + " says " + std::to_string(ranks) +
                      " ranks, others " + std::to_string(meeting->clique->ranks()));
    }
    if (!meeting->clique->join(rank)) {
      return fail(nullptr, ncclInvalidArgument,
                  "rank " + std::to_string(rank) + " has joined already");
    }
    *communicator = new Communicator{meeting->clique, rank, ""};
    last = ++meeting->joined == ranks;
  }
  if (last) delete meeting;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return fail(nullptr, ncclInvalidUsage, "no group was started");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, Group{});
  return ended.failure != ncclSuccess ? ended.failure : run_calls(ended.calls);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, Stream stream) {
  return submit(communicator, {Kind::all_reduce, send, receive, count, type, operation, 0, 0},
                stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t operation, ncclComm_t communicator,
                               Stream stream) {
  return submit(communicator,
                {Kind::reduce_scatter, send, receive, receive_count, type, operation, 0, 0},
                stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count,
                           ncclDataType_t type, ncclComm_t communicator, Stream stream) {
  return submit(communicator, {Kind::all_gather, send, receive, send_count, type, ncclSum, 0, 0},
                stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, Stream stream) {
  return submit(communicator, {Kind::broadcast, send, receive, count, type, ncclSum, root, 0},
                stream);
}

}  // namespace shardproof::host
