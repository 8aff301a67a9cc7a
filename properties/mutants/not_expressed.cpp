// Reported faults that a candidate's table cannot have, and why.
#include "properties/mutants/mutant.h"

namespace shardproof {

const std::vector<NotExpressed>& faults_not_expressed() {
  static const std::vector<NotExpressed> faults = {
      {"PaddlePaddle/Paddle#32464",
       "replicas with different counts: all replicas of a call have one N"},
      {"pytorch/pytorch#37359", "replicas with different counts, likewise"},
      {"facebookresearch/detectron2#1807", "a replica without examples: a call has at least one"},
      {"pytorch/pytorch#5410",
       "a plain float32 sum of equal numbers: a rounding that the any-order bound allows, not a "
       "fault"},
      {"pytorch/pytorch#36382", "the backward pass has no operations yet"},
      {"horovod/horovod#2654", "the adjoint of a collective: the backward pass, likewise"},
      {"sony/nnabla#1120", "the backward pass, likewise"},
      {"pytorch/pytorch#57796", "the backward pass, likewise"},
      {"pytorch/pytorch#198119", "the backward pass, likewise"},
      {"jax-ml/jax#3970", "gradients of a loss: the backward pass, likewise"},
      {"jax-ml/jax#36886", "gradients of a loss, likewise"},
      {"pytorch/xla#5279", "a collective has one group, all replicas"},
      {"pytorch/pytorch#167178", "one group, likewise"},
      {"verl-project/verl#7493", "one group, likewise"},
      {"pytorch/xla#9670", "a mean over one replica has no scale to skip"},
      {"pytorch/pytorch#192920", "arrays of collectives are contiguous"},
      {"pytorch/pytorch#159548", "arrays of collectives are contiguous"},
      {"NVIDIA/Megatron-LM#6773",
       "accumulation of gradients over microbatches is no operation here"},
      {"huggingface/transformers#35808", "accumulation over microbatches, likewise"},
      {"huggingface/accelerate#3877", "accumulation over microbatches, likewise"},
      {"deepspeedai/DeepSpeed#1488", "accumulation over microbatches, likewise"},
      {"deepspeedai/DeepSpeed#2695", "loss scaling is no operation here"},
      {"ISEEKYAN/Megatron-LM#146", "accumulation over microbatches, likewise"},
      {"deepspeedai/DeepSpeed#8158", "offsets of shards are the engine's, not a candidate's"},
      {"deepspeedai/DeepSpeed#1380", "offsets of shards, likewise"},
      {"deepspeedai/DeepSpeed#930", "where gathered values lie is the engine's"},
      {"facebookresearch/fairscale#517", "when buckets are reduced is the engine's"},
      {"deepspeedai/DeepSpeed#3727", "when buckets are reused is the engine's"},
      {"deepspeedai/DeepSpeed#7965", "when memory is given back is the engine's"},
      {"deepspeedai/DeepSpeed#8061", "streams are the engine's"},
      {"NVIDIA/Megatron-LM#6187", "streams are the engine's"},
      {"pytorch/pytorch#46750", "who owns what is the engine's"},
      {"pytorch/pytorch#170862", "norms over shards are sums of the engine's"},
      {"pytorch/pytorch#88955", "norms over shards, likewise"},
      {"ByteDance-Seed/VeOmni#184", "norms over shards, likewise"},
      {"NVIDIA-NeMo/RL#3788", "norms over shards, likewise"},
      {"ROCm/TransformerEngine#715", "norms over shards, likewise"},
      {"deepspeedai/DeepSpeed#8313", "norms over shards, likewise"},
      {"pytorch/pytorch#46849", "norms over shards, likewise"},
      {"hpcaitech/ColossalAI#22", "trust ratios are sums of the engine's"},
      {"deepspeedai/DeepSpeed#490", "trust ratios, likewise"},
      {"deepspeedai/DeepSpeed#1823", "the step count is a shared slot of the engine's"},
      {"deepspeedai/DeepSpeed#8471", "the step count, likewise"},
      {"tenstorrent/tt-metal#53212", "states that are loaded again are the engine's"},
      {"deepspeedai/DeepSpeed#564", "states that are loaded again, likewise"},
      {"deepspeedai/DeepSpeed#1643", "copies of parameters in bfloat16 are the engine's"},
      {"NovaSky-AI/SkyRL#2149", "copies of parameters, likewise"},
      {"NVIDIA/Megatron-LM#5331", "skipping a step on an overflow is no operation here"},
      {"karpathy/nanochat#857", "the learning rate is a shared slot of the engine's"},
      {"tenstorrent/tt-metal#55947", "random masks are no operation here"},
      {"bigscience-workshop/Megatron-DeepSpeed#276", "random masks, likewise"},
  };
  return faults;
}

}  // namespace shardproof
