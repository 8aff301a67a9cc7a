// The NCCL interface within one process, on the CPU: names, values and meaning of NCCL 2's nccl.h,
// in a namespace of its own, so that real NCCL may be linked beside it. Either one thread drives
// all ranks between ncclGroupStart and ncclGroupEnd, or every rank has a thread of its own, and a
// call returns when all ranks have made it.
//
// The order in which a reduction adds the ranks is drawn from the seed of rank 0's stream and the
// number of elements: by rank, a ring (each chunk starts at another rank), a tree, or a random
// order of ranks. All ranks receive the same bits. 16-bit formats are rounded after every step, and
// ncclAvg multiplies by 1/R before it adds, as NCCL does.
//
// Ranks that disagree on the call, count, type, operation or root all get ncclInvalidArgument, and
// a group that drives several ranks of ncclCommInitAll, but not all of them alike,
// ncclInvalidUsage; ncclGetLastError says which rank. A rank that never calls is waited for, as in
// NCCL.
#pragma once

#include <array>
#include <cstddef>

#include "device/runtime/host/executor.h"

namespace shardproof::host {

struct Communicator;
using ncclComm_t = Communicator*;

struct ncclUniqueId {
  std::array<char, 128> internal;
};

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
};

enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};

const char* ncclGetErrorString(ncclResult_t result);
// What the last failed call on this communicator, or on this thread when it is null, got wrong.
const char* ncclGetLastError(ncclComm_t communicator);

// communicators[r] becomes rank r of `ranks`. `devices` is not used.
ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int ranks, const int* devices);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
// Joins the clique of `id`, which must be made in this process. Does not wait for the others.
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

// Counts are in elements. `receive` may be `send`, for a gather or scatter at the rank's own part.
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, Stream stream);
// Rank r receives part r, of `receive_count` elements, of the reduction of R parts.
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t operation, ncclComm_t communicator,
                               Stream stream);
// Part r of what all receive is what rank r sends.
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t send_count,
                           ncclDataType_t type, ncclComm_t communicator, Stream stream);
// All receive what rank `root` sends; `send` matters there only.
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, Stream stream);

}  // namespace shardproof::host
