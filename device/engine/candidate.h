/* A kernel of yours under judgement: the C interface of a candidate library. C99, C++17 and nvcc
 * read it; it needs nothing else. docs/candidate/README.md walks through three examples.
 *
 * A candidate is a shared library that exports
 *
 *   int shardproof_candidate(uint32_t version, shardproof_candidate_table* table);
 *
 * It gets the version below and a table of zeros, sets table->version to the
 * SHARDPROOF_CANDIDATE_VERSION that it was compiled with, fills the entries that it has and returns
 * 0. An entry left null is the built-in operation. sync_batch_norm, shard and unshard are for later
 * versions of the program: this one refuses a table that fills them, since nothing would judge
 * them.
 *
 * Every operation gets one call structure and returns 0, or any other status after it has written a
 * sentence to header.message. When it returns, its outputs are complete, in CUDA memory on
 * header.stream at least, and no thread of it is left but table->threads_kept. It may write its
 * outputs and its scratch and nothing else. Everything in a call belongs to the caller and is gone
 * when the operation returns. Memory starts at a multiple of 64 bytes unless the call names a part
 * of a larger array. Tensors are dense, in the order of their shape, unless table->layouts says
 * that the candidate takes others.
 */
#ifndef SHARDPROOF_CANDIDATE_H
#define SHARDPROOF_CANDIDATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a structure changes in any way but by new fields at its end. */
#define SHARDPROOF_CANDIDATE_VERSION 1u

typedef enum {
  SHARDPROOF_CHANNEL_MEAN,
  SHARDPROOF_CHANNEL_VARIANCE,
  SHARDPROOF_NORMALISE,
  SHARDPROOF_SYNC_BATCH_NORM,
  SHARDPROOF_RUNNING_STATISTICS,
  SHARDPROOF_CONVOLUTION,
  SHARDPROOF_DEPTHWISE,
  SHARDPROOF_RELU,
  SHARDPROOF_GLOBAL_AVERAGE_POOL,
  SHARDPROOF_DENSE,
  SHARDPROOF_ADD,
  SHARDPROOF_ALL_REDUCE_MEAN,
  SHARDPROOF_ALL_REDUCE_SUM,
  SHARDPROOF_REDUCE_SCATTER_MEAN,
  SHARDPROOF_ALL_GATHER,
  SHARDPROOF_BROADCAST,
  SHARDPROOF_SHARD,
  SHARDPROOF_UNSHARD,
  SHARDPROOF_OWNED_STEP,
  SHARDPROOF_OPERATIONS
} shardproof_operation;

typedef enum { SHARDPROOF_FLOAT32, SHARDPROOF_BFLOAT16, SHARDPROOF_FLOAT16 } shardproof_dtype;
typedef enum { SHARDPROOF_HOST, SHARDPROOF_CUDA } shardproof_memory;

/* The candidate goes by the strides of x and y in channel_mean, channel_variance, normalise,
 * convolution, depthwise and global_average_pool: about half of the shapes come channels last. */
enum { SHARDPROOF_CHANNELS_LAST = 1 };

/* The error contract of one entry: what it says of its arithmetic (docs/bounds.md derives the
 * allowance from it). 0 in any field: unset, the strictest common practice, in brackets. */
enum {
  SHARDPROOF_OPERANDS_FLOAT32 = 1,
  SHARDPROOF_OPERANDS_TF32,
  SHARDPROOF_OPERANDS_BFLOAT16,
  SHARDPROOF_OPERANDS_FLOAT16
};
enum {
  SHARDPROOF_ACCUMULATE_FLOAT32 = 1,
  SHARDPROOF_ACCUMULATE_FLOAT64,
  SHARDPROOF_ACCUMULATE_TENSOR_CORE,
  SHARDPROOF_ACCUMULATE_BFLOAT16,
  SHARDPROOF_ACCUMULATE_FLOAT16
};
enum { SHARDPROOF_MEAN_DIVIDE = 1, SHARDPROOF_MEAN_RECIPROCAL, SHARDPROOF_MEAN_PREMULTIPLY };
enum {
  SHARDPROOF_STATISTICS_TWO_PASS = 1,
  SHARDPROOF_STATISTICS_SHIFTED,
  SHARDPROOF_STATISTICS_ONE_PASS,
  SHARDPROOF_STATISTICS_WELFORD,
  SHARDPROOF_STATISTICS_MERGED
};
enum { SHARDPROOF_FORM_SUBTRACT_FIRST = 1, SHARDPROOF_FORM_FUSED };
enum { SHARDPROOF_NO = 1, SHARDPROOF_YES };

typedef struct {
  uint32_t operands;   /* precision of the operands of products [float32] */
  uint32_t accumulate; /* precision of running sums [float32] */
  uint64_t lanes;      /* running sums that one output is spread over, term j to sum j mod lanes,
                          then combined in a binary tree [1, which also covers any order] */
  uint32_t mean;       /* S / n; S times 1/n; or the sum of x times 1/n [divide] */
  uint32_t statistics; /* of a variance [two-pass] */
  uint32_t form;       /* (x - mean)*scale + beta, or x*scale + shift [subtract first] */
  uint32_t winograd;   /* tile m of F(m, r) of convolutions; 1: direct [direct] */
  double root;         /* largest error of the reciprocal root, in ulps of its result [2] */
  uint32_t root_exact_at_powers_of_four; /* [no] */
  uint32_t contraction;                  /* whether products and sums may be fused [yes] */
  uint32_t subnormals_kept;              /* otherwise they become zero [yes] */
  uint32_t reserved;
} shardproof_contract;

/* An array. Strides are in elements. data is null where the operation has no such operand. An
 * input's memory is read-only. */
typedef struct {
  void* data;
  uint32_t dtype; /* shardproof_dtype */
  uint32_t rank;  /* how many of the four are used */
  int64_t shape[4];
  int64_t strides[4];
} shardproof_tensor;

/* What joins the replicas in a call that all of them make at once, each on a thread of its own.
 * Both functions return 0, or another number when a replica has given up: return then. */
typedef struct shardproof_collective {
  uint64_t size; /* bytes of this structure */
  void* state;   /* the caller's */
  int (*barrier)(const struct shardproof_collective*);
  /* data[i] = the sum of data[i] over the replicas, added in their order; the same bits on all. */
  int (*all_reduce_sum)(const struct shardproof_collective*, float* data, uint64_t count);
} shardproof_collective;

/* At the head of every call. */
typedef struct {
  uint64_t size;      /* bytes of the whole call structure: fields past it do not exist */
  uint32_t operation; /* shardproof_operation */
  uint32_t memory;    /* shardproof_memory of every pointer; strides and counts are on the host */
  uint32_t replica, replicas;
  uint32_t in_place; /* 1 when an output is an input's memory */
  uint32_t reserved;
  void* stream;  /* cudaStream_t, null in host memory */
  void* scratch; /* as many bytes as scratch_bytes asked for, filled with NaN; or null */
  uint64_t scratch_bytes;
  char* message; /* room for one sentence, ended by a zero, when the status is not 0 */
  uint64_t message_bytes;
  const shardproof_collective* collective; /* null unless all replicas call at once */
} shardproof_header;

/* mean[c] = (1/m) sum of x over the m = N*H*W numbers of channel c. x [N, C, H*W]. */
typedef struct {
  shardproof_header header;
  shardproof_tensor x, mean;
} shardproof_channel_mean;

/* variance[c] = (1/m) sum of (x - own_mean[c])^2, plus (own_mean[c] - mean[c])^2: the second
 * moment of this replica about the mean of all of them. x [N, C, H*W], the others [C]. */
typedef struct {
  shardproof_header header;
  shardproof_tensor x, own_mean, mean, variance;
} shardproof_channel_variance;

/* y = gamma*(x - mean)/sqrt(variance + epsilon) + beta, then max(y, 0) when relu is 1.
 * x, y [N, C, H*W], the others [C]. */
typedef struct {
  shardproof_header header;
  shardproof_tensor x, mean, variance, gamma, beta, y;
  float epsilon;
  uint32_t relu;
} shardproof_normalise;

/* A whole synchronised batch norm: each replica's y from the statistics of all replicas, which it
 * hands back in mean and variance [C]. Called by all replicas at once. */
typedef shardproof_normalise shardproof_sync_batch_norm;

/* running_mean = (1 - momentum)*running_mean + momentum*mean; running_variance likewise, of
 * variance*count/(count - 1), count the numbers a channel over all replicas: at least 2, or 0,
 * which leaves both as they are. All [C]; in place. */
typedef struct {
  shardproof_header header;
  shardproof_tensor mean, variance, running_mean, running_variance;
  float momentum;
  uint32_t reserved;
  uint64_t count;
} shardproof_running_statistics;

/* Cross-correlation. x [N, C, H, W], weight [K, C, k, k], bias [K] or null, y [N, K, H', W'].
 * pad_begin zeros stand above and left of the image, pad_end below and right of it. Depthwise:
 * weight [C, 1, k, k], K = C, filter c on channel c alone. */
typedef struct {
  shardproof_header header;
  shardproof_tensor x, weight, bias, y;
  uint64_t stride, pad_begin, pad_end;
} shardproof_convolution;

/* y = max(x, 0), NaN stays NaN; [n]. Global average pool: x [N, C, H*W], y [N, C]. */
typedef struct {
  shardproof_header header;
  shardproof_tensor x, y;
} shardproof_unary;

/* y = a + b; [n]. y may be a or b. */
typedef struct {
  shardproof_header header;
  shardproof_tensor a, b, y;
} shardproof_add;

/* y [N, O] = x [N, I] times weight [I, O], plus bias [O] or null. */
typedef struct {
  shardproof_header header;
  shardproof_tensor x, weight, bias, y;
} shardproof_dense;

/* A collective, called by all replicas at once. sends[r] and receives[r] are replica r's arrays,
 * all within reach as between peers; this replica's are sends[replica] and receives[replica], and
 * it is the one that completes receives[replica]. count: elements of the smaller of the two.
 *   all-reduce       receive[i] = sum (or mean) over r of sends[r][i], the same bits on all
 *   reduce-scatter   receive[i] = mean over r of sends[r][replica*count + i]
 *   all-gather       receive[r*count + i] = sends[r][i]
 *   broadcast        receive[i] = sends[root][i]; sends is null elsewhere
 *   shard            receive[i] = sends[root][replica*count + i]
 *   unshard          receive[r*count + i] = sends[r][i] on root, nothing elsewhere */
typedef struct {
  shardproof_header header;
  const void* const* sends;
  void* const* receives;
  uint64_t count;
  uint32_t dtype;
  uint32_t root;
} shardproof_collective_call;

/* One assignment target = function(reads) of an optimizer program. Scopes: 0 all parameters, 1
 * parameter, 2 row, 3 column, 4 coordinate. Functions, of a, b, c in order: 1 a; 2 -a; 3 sqrt a;
 * 4 |a|; 5 sign a; 6 a+b; 7 a-b; 8 a*b; 9 a/b; 10 minimum; 11 maximum; 12 a<b; 13 a<=b; 14 a==b;
 * 15 a!=b; 16 a*b+c rounded once; 17 b where a is not 0 (NaN too), else c. Comparisons give 1 or 0;
 * sign is 0 of both zeros and of NaN; minimum and maximum are NaN where either is, and -0 is below
 * +0. */
typedef struct {
  uint8_t target_scope, function;
  uint16_t target;
  uint8_t read_scopes[3];
  uint8_t reserved;
  uint16_t reads[3];
  uint16_t reserved_too;
} shardproof_assignment;

/* The assignments, in order, to slots of scope coordinate, for the owned coordinates of one
 * parameter at positions first .. first + count - 1. fields[slot] holds a slot's values by
 * position; null: a temporary. Slot k of row i (of all parameters) is row[k*rows + i], of a column
 * column[k*all_columns + i], of a parameter parameter_values[k*parameters + i]; shared[k].
 * Position first + i has element element_at[first + i], or first_element + i where element_at is
 * null; element e lies in row first_row + e / columns, column first_column + e % columns. */
typedef struct {
  shardproof_header header;
  const shardproof_assignment* assignments;
  float* const* fields;
  const float *shared, *parameter_values, *row, *column;
  const uint32_t* element_at;
  uint64_t assignment_count, field_count;
  uint64_t parameters, rows, all_columns;
  uint64_t first, count, parameter, first_row, first_column, columns, first_element;
} shardproof_owned_step;

typedef struct {
  uint64_t size;         /* bytes of this structure here, set by the caller */
  uint32_t version;      /* set by the candidate to SHARDPROOF_CANDIDATE_VERSION */
  uint32_t threads_kept; /* most threads that stay between calls: a pool, a driver's; 0 if none */
  const char* name;      /* for reports; null: the file's name */

  /* By shardproof_operation; what stands past SHARDPROOF_OPERATIONS is for later ones. */
  shardproof_contract contracts[32];

  /* Bytes of scratch that a call needs; the call is given as the operation will get it, scratch
   * null. Null: none ever. */
  uint64_t (*scratch_bytes)(uint32_t operation, const void* call);

  int (*channel_mean)(const shardproof_channel_mean*);
  int (*channel_variance)(const shardproof_channel_variance*);
  int (*normalise)(const shardproof_normalise*);
  int (*sync_batch_norm)(const shardproof_sync_batch_norm*);
  int (*running_statistics)(const shardproof_running_statistics*);
  int (*convolution)(const shardproof_convolution*);
  int (*depthwise)(const shardproof_convolution*);
  int (*relu)(const shardproof_unary*);
  int (*global_average_pool)(const shardproof_unary*);
  int (*dense)(const shardproof_dense*);
  int (*add)(const shardproof_add*);
  int (*all_reduce_mean)(const shardproof_collective_call*);
  int (*all_reduce_sum)(const shardproof_collective_call*);
  int (*reduce_scatter_mean)(const shardproof_collective_call*);
  int (*all_gather)(const shardproof_collective_call*);
  int (*broadcast)(const shardproof_collective_call*);
  int (*shard)(const shardproof_collective_call*);
  int (*unshard)(const shardproof_collective_call*);
  int (*owned_step)(const shardproof_owned_step*);

  /* Sum of SHARDPROOF_CHANNELS_LAST and nothing else yet. 0: tensors are dense, in the order of
   * their shape. */
  uint64_t layouts;
} shardproof_candidate_table;

/* What a candidate exports. */
int shardproof_candidate(uint32_t version, shardproof_candidate_table* table);

#ifdef __cplusplus
}
#endif

#endif
