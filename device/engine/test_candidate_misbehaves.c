/* A candidate that misbehaves in the one way that MISBEHAVIOUR names, in its ReLU or all-reduce.
 * The rest of it is right. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/engine/candidate.h"

enum {
  correct,
  crash,
  hang,
  past_end,
  past_slack,
  before_start,
  changes_input,
  status,
  threads,
  prints,
  calls_exit,
  scratch_overrun,
  no_symbol_here,
  other_version,
  refuses,
  empty,
  crash_at_load,
  divides,
  null_pointer,
  kept_thread,
  winograd
};

static void* forever(void* nothing) {
  for (;;) pause();
  return nothing;
}

static void keep_thread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, forever, NULL);
}

static int relu(const shardproof_unary* call) {
  const float* x = call->x.data;
  float* y = call->y.data;
  const int64_t count = call->x.shape[0];
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  switch (MISBEHAVIOUR) {
    case crash:
      abort();
    case hang:
      for (;;) pause();
    case past_end:
      y[count] = 1;
      break;
    case past_slack:
      y[count + 16] = 1;
      break;
    case before_start:
      y[-2] = 1;
      break;
    case changes_input:
      ((float*)call->x.data)[17] = 1;
      break;
    case status:
      snprintf(call->header.message, call->header.message_bytes, "no kernel for %d numbers",
               (int)count);
      return 7;
    case threads:
      keep_thread();
      break;
    case kept_thread: {
      static int started;
      if (!started) keep_thread();
      started = 1;
      break;
    }
    case prints:
      puts("a line of the candidate's");
      fflush(stdout);
      break;
    case calls_exit:
      exit(0);
    case scratch_overrun:
      ((char*)call->header.scratch)[100] = 0;
      break;
    case divides: {
      volatile int zero = 0;
      return 7 / zero;
    }
    case null_pointer:
      *(volatile int*)call->header.stream = 1;
      break;
    default:
      break;
  }
  return 0;
}

static int all_reduce_mean(const shardproof_collective_call* call) {
  const uint32_t replica = call->header.replica, replicas = call->header.replicas;
  const shardproof_collective* collective = call->header.collective;
  float* receive = call->receives[replica];
  float* sum = call->header.scratch;
  if (MISBEHAVIOUR == status && replica == 1) return 3;
  if (MISBEHAVIOUR == hang && replica == 1)
    for (;;) pause();
  for (uint64_t i = 0; i < call->count; ++i) {
    sum[i] = 0;
    for (uint32_t r = 0; r < replicas; ++r) sum[i] += ((const float*)call->sends[r])[i];
  }
  if (collective->barrier(collective) != 0) return 1;
  for (uint64_t i = 0; i < call->count; ++i) receive[i] = sum[i] / (float)replicas;
  return 0;
}

static uint64_t scratch_bytes(uint32_t operation, const void* call) {
  if (operation == SHARDPROOF_ALL_REDUCE_MEAN)
    return ((const shardproof_collective_call*)call)->count * sizeof(float);
  return MISBEHAVIOUR == scratch_overrun ? 100 : 0;
}

int EXPORTED_NAME(uint32_t version, shardproof_candidate_table* table) {
  table->version = MISBEHAVIOUR == other_version ? 7 : version;
  if (MISBEHAVIOUR == refuses) return 5;
  if (MISBEHAVIOUR == empty) return 0;
  if (MISBEHAVIOUR == crash_at_load) abort();
  if (MISBEHAVIOUR == winograd) table->contracts[SHARDPROOF_CONVOLUTION].winograd = 4;
  if (MISBEHAVIOUR == kept_thread) table->threads_kept = 1;
  table->contracts[SHARDPROOF_ALL_REDUCE_MEAN].accumulate = SHARDPROOF_ACCUMULATE_BFLOAT16;
  table->contracts[SHARDPROOF_ALL_REDUCE_MEAN].lanes = 8;
  table->contracts[SHARDPROOF_ALL_REDUCE_MEAN].contraction = SHARDPROOF_NO;
  table->scratch_bytes = scratch_bytes;
  table->relu = relu;
  table->all_reduce_mean = all_reduce_mean;
  return 0;
}
