// GivenSums: a device whose collective sums give what another run's gave.
#pragma once

#include <cstddef>
#include <vector>

#include "device/engine/forwarding_device.h"
#include "device/engine/owned_optimizer.h"

namespace shardproof {

// Hands on the sums that another run's collectives gave, in the order in which they ran: between a
// sharded and a replicated run they may differ by the order of additions. What the device gives
// itself is kept, to be judged apart.
class GivenSums : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  void give(const std::vector<OwnedOptimizer::Collective>& collectives) {
    given_.clear();
    computed_.clear();
    for (const auto& collective : collectives) given_.push_back(collective.values.at(0));
  }
  // [collective][rank][element]
  const std::vector<std::vector<std::vector<float>>>& computed() const { return computed_; }

  void all_reduce_sums(const AllReduceSumsCall& call) override {
    base().all_reduce_sums(call);
    synchronize();
    const std::vector<float>& values = given_.at(computed_.size());
    auto& computed = computed_.emplace_back();
    for (std::size_t rank = 0; rank < call.result.size(); ++rank) {
      computed.emplace_back(call.count);
      download(static_cast<int>(rank), call.result[rank], computed.back().data(), call.count);
      upload(static_cast<int>(rank), call.result[rank], values.data(), call.count);
    }
  }

 private:
  std::vector<std::vector<float>> given_;
  std::vector<std::vector<std::vector<float>>> computed_;
};

}  // namespace shardproof
