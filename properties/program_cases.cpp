#include "properties/program_cases.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "device/engine/forwarding_device.h"

namespace shardproof {
namespace {

class LitteredMemory : public ForwardingDevice {
 public:
  LitteredMemory(std::unique_ptr<Device> base, std::uint64_t seed)
      : ForwardingDevice(std::move(base)), random_(seed, "litter") {}

  float* allocate(int replica, std::size_t count) override {
    float* const memory = ForwardingDevice::allocate(replica, count);
    std::vector<float> litter(count);
    for (float& number : litter) number = static_cast<float>(random_.triangular(4));
    upload(replica, memory, litter.data(), count);
    return memory;
  }

 private:
  Random random_;
};

}  // namespace

void claim_step_agrees(const ProgramCase& drawn, Trial& trial,
                       const std::function<bool(const std::string& claim)>& about) {
  const ProgramResult result = judge_program_case(trial.make, drawn);
  if (!result.out_of_memory.empty()) throw OutOfDeviceMemory(result.out_of_memory);
  // Of a case without a finite number nothing could be said of a device that is right.
  discard_unless(!result.judged.empty() || !result.failure.empty());
  const auto wrong = first_wrong(result);
  discard_unless(!wrong || !is_mean_of_none(drawn, *wrong));
  if (wrong && (!about || about(wrong->claim))) {
    trial.wrong = drawn;
    claim(false, describe(*wrong));
  }
  discard_unless(!wrong &&
                 std::any_of(result.judged.begin(), result.judged.end(),
                             [&](const std::string& one) { return !about || about(one); }));
}

DeviceMaker with_littered_memory(const DeviceMaker& make) {
  return [make](int replicas, const Schedule& schedule) {
    return std::make_unique<LitteredMemory>(make(replicas, schedule), schedule.seed);
  };
}

}  // namespace shardproof
