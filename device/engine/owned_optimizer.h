// OwnedOptimizer: the sharded step of an optimizer program on a Device (spec section 1). Gradients
// are reduced to their mean over the ranks, each rank runs the program on the coordinates it owns
// and on the slots of coarser scopes, and the parameters are gathered into every rank's full copy.
// A rank is a replica of the device; owner r is rank r, and ranks past the last owner own nothing.
//
// Layout: parameters are flattened in order and cut into buckets. A bucket has one slice a rank,
// all of one length: the rank's coordinates in ascending order, then pads up to the longest slice.
// With ownership by contiguous blocks that is the bucket itself, padded to a multiple of the ranks.
// Pads are NaN. A rank keeps the full parameters and gradients in this layout, and of masters and
// state only its own slices.
//
// One owner given the gradients that the owners of another run used (step_reduced) is the
// replicated run that the sharded one must equal bit for bit (A1).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/engine/device.h"
#include "reference/slots/array_program.h"
#include "reference/slots/array_state.h"
#include "reference/slots/ownership.h"

namespace shardproof {

struct OwnedOptimizerOptions {
  enum class Parameters { float32, bfloat16 };  // of the ranks' full copies; masters are float32
  enum class Reduction { reduce_scatter, all_reduce };

  Parameters parameters = Parameters::float32;
  Reduction reduction = Reduction::reduce_scatter;
  std::size_t bucket = 0;  // coordinates in a bucket; 0: all in one
};

// Slice r of each bucket to owner r: the ownership that needs the fewest pads when there are
// several buckets. With one bucket it is block_ownership.
Ownership bucket_ownership(std::size_t coordinates, std::size_t owners, std::size_t bucket);

// A saved optimizer: each rank's part, as a system writes one file a rank.
struct ShardSet {
  Ownership ownership;
  // [rank][coordinate slot]: the values of a slot that is kept (parameter: the masters; state), at
  // the rank's coordinates in ascending order. Empty for other slots.
  std::vector<std::vector<std::vector<float>>> owned;
  std::vector<ArrayState<float>> coarser;  // [rank]: coarser scopes; no coordinate slots
};

// The whole state: coordinates from their owners, coarser scopes from rank 0. What is not kept is
// NaN. Give it to a new OwnedOptimizer to go on under another ownership or number of ranks.
ArrayState<float> join(const ShardSet& shards);

class OwnedOptimizer {
 public:
  // What a collective of the last step gave.
  struct Collective {
    std::size_t statement;                   // index of the Reduction in the program's statements
    std::vector<std::vector<float>> values;  // [rank][element of its target]
  };

  // `initial` has a value for every element of every slot; those of the gradient and of temporaries
  // are not used. `device` must outlive the object. Throws std::invalid_argument for a reduction
  // that is no collective (such a program is not separable), for owners that outnumber the device's
  // replicas, and for an ownership or state that does not fit the shapes.
  OwnedOptimizer(Device& device, const ArrayProgram& program, std::vector<ParameterShape> shapes,
                 Ownership ownership, const ArrayState<float>& initial,
                 OwnedOptimizerOptions options = {});
  ~OwnedOptimizer();
  OwnedOptimizer(const OwnedOptimizer&) = delete;
  OwnedOptimizer& operator=(const OwnedOptimizer&) = delete;

  // One step; gradients[rank][coordinate], not yet reduced. A program without a gradient ignores
  // them.
  void step(std::span<const std::vector<float>> gradients);
  // One step from gradients that are reduced already, by coordinate: no reduction runs.
  void step_reduced(std::span<const float> gradient);

  int ranks() const;
  std::size_t coordinates() const;
  const Ownership& ownership() const;

  // The rank's full copy of the parameters, by coordinate, as float32; empty where the program has
  // no parameter.
  std::vector<float> parameters(int rank) const;
  // The rank's values of the slots of coarser scopes. The slots of scope coordinate are empty.
  ArrayState<float> coarser(int rank) const;
  // A slot of scope coordinate that is kept, by coordinate, each value from its owner's memory. Of
  // the parameter: the masters.
  std::vector<float> owned(ArraySlot slot) const;
  // The reduced gradient that each owner used in the last step, by coordinate.
  std::vector<float> reduced_gradient() const;
  // The whole reduced gradient that a rank received in the last step, by coordinate; empty where
  // the reduction was no all-reduce.
  std::vector<float> all_reduced_gradient(int rank) const;
  const std::vector<Collective>& collectives() const;

  // Every place outside what the step may write that it wrote nevertheless: "m of rank 2: a pad of
  // bucket 1, slice 2", "the gradients of rank 0: a word after its end". Empty when all are intact.
  std::vector<std::string> overwritten() const;

  ShardSet save() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace shardproof
