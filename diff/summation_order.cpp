#include "diff/summation_order.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "device/engine/forwarding_device.h"
#include "diff/report.h"
#include "reference/numbers/random.h"

namespace shardproof {
namespace {

constexpr float kHuge = 0x1p100F;
constexpr std::size_t kCallsATerm = 64;
constexpr int kPairs = 48;

class Learner {
 public:
  Learner(std::size_t terms, const SumOfTerms& sum, std::size_t most_calls)
      : terms_(terms), sum_(sum), calls_left_(most_calls) {}

  std::optional<SummationTree> learn() {
    std::vector<std::size_t> all(terms_);
    for (std::size_t i = 0; i < terms_; ++i) all[i] = i;
    tree_.root = subtree(all);
    if (!consistent_ || tree_.nodes[tree_.root].terms != terms_) return std::nullopt;
    return std::move(tree_);
  }

 private:
  // The terms under the addition that joins i and j.
  std::size_t joined(std::size_t i, std::size_t j) {
    if (calls_left_ == 0) consistent_ = false;
    if (!consistent_) return 0;
    --calls_left_;
    std::vector<float> values(terms_, 1.0F);
    values[i] = kHuge;
    values[j] = -kHuge;
    const double left = sum_(values);
    const double count = std::round(left);
    // A mean of so many terms comes back with a few roundings.
    const bool whole =
        std::abs(left - count) <= 0.25 && count >= 0 && count <= static_cast<double>(terms_ - 2);
    if (!whole) consistent_ = false;
    return whole ? terms_ - static_cast<std::size_t>(count) : 0;
  }

  std::size_t leaf(std::size_t term) {
    tree_.nodes.push_back({{}, term, 1});
    return tree_.nodes.size() - 1;
  }
  std::size_t join(std::vector<std::size_t> children) {
    std::size_t terms = 0;
    for (const std::size_t child : children) terms += tree_.nodes[child].terms;
    tree_.nodes.push_back({std::move(children), 0, terms});
    return tree_.nodes.size() - 1;
  }

  // The tree over `terms`, which stand under one addition or are one term. From its first term up
  // to the root, each addition joins a group of the others.
  std::size_t subtree(const std::vector<std::size_t>& terms) {
    std::size_t node = leaf(terms[0]);
    std::map<std::size_t, std::vector<std::size_t>> groups;  // by how many the addition joins
    for (std::size_t k = 1; k < terms.size() && consistent_; ++k) {
      groups[joined(terms[0], terms[k])].push_back(terms[k]);
    }
    for (const auto& [size, group] : groups) {
      if (!consistent_) break;
      if (tree_.nodes[node].terms + group.size() != size) {
        consistent_ = false;
        break;
      }
      std::vector<std::size_t> children = {node};
      for (const std::size_t sibling : siblings(group, size)) children.push_back(sibling);
      node = join(std::move(children));
    }
    return node;
  }

  // The children of one addition of `size` terms that hold `group`: one, but where more than two
  // are added at once.
  std::vector<std::size_t> siblings(std::vector<std::size_t> group, std::size_t size) {
    std::vector<std::size_t> children;
    while (!group.empty() && consistent_) {
      std::vector<std::size_t> together = {group[0]}, others;
      for (std::size_t k = 1; k < group.size() && consistent_; ++k) {
        (joined(group[0], group[k]) < size ? together : others).push_back(group[k]);
      }
      children.push_back(subtree(together));
      group = std::move(others);
    }
    return children;
  }

  const std::size_t terms_;
  const SumOfTerms& sum_;
  std::size_t calls_left_;
  bool consistent_ = true;
  SummationTree tree_;
};

// Σ k and Σ k² over the additions, each of k terms.
struct Sizes {
  double linear = 0, square = 0;

  void add(double terms) {
    linear += terms;
    square += terms * terms;
  }
};

// Of `terms` terms dealt to so many running sums, joined in a binary tree.
Sizes sizes_of_lanes(std::size_t terms, std::size_t lanes) {
  Sizes sizes;
  std::vector<std::size_t> sums;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const std::size_t held = terms / lanes + (lane < terms % lanes ? 1 : 0);
    for (std::size_t k = 2; k <= held; ++k) sizes.add(static_cast<double>(k));
    sums.push_back(held);
  }
  while (sums.size() > 1) {
    std::vector<std::size_t> next;
    for (std::size_t i = 0; i + 1 < sums.size(); i += 2) {
      next.push_back(sums[i] + sums[i + 1]);
      sizes.add(static_cast<double>(next.back()));
    }
    if (sums.size() % 2 == 1) next.push_back(sums.back());
    sums = std::move(next);
  }
  return sizes;
}

bool same(const SummationTree& a, std::size_t x, const SummationTree& b, std::size_t y) {
  const SummationTree::Node &one = a.nodes[x], &other = b.nodes[y];
  if (one.children.size() != other.children.size() || one.term != other.term) return false;
  for (std::size_t i = 0; i < one.children.size(); ++i) {
    if (!same(a, one.children[i], b, other.children[i])) return false;
  }
  return true;
}
bool same(const std::optional<SummationTree>& a, const std::optional<SummationTree>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return same(*a, a->root, *b, b->root);
}

void write(const SummationTree& tree, std::size_t node, std::string& text) {
  const SummationTree::Node& at = tree.nodes[node];
  if (at.children.empty()) {
    text += std::to_string(at.term);
    return;
  }
  text += "(";
  for (std::size_t i = 0; i < at.children.size(); ++i) {
    if (i > 0) text += "+";
    write(tree, at.children[i], text);
  }
  text += ")";
}

// Numbers in the memory of a replica.
class Array {
 public:
  Array(Device& device, int replica, std::size_t count)
      : device_(device), replica_(replica), count_(count), data_(device.allocate(replica, count)) {}
  ~Array() { device_.release(replica_, data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void fill(std::span<const float> values) {
    device_.upload(replica_, data_, values.data(), values.size());
  }
  void fill(float value) { fill(std::vector<float>(count_, value)); }
  float at(std::size_t i) {
    float value = 0;
    device_.download(replica_, data_ + i, &value, 1);
    return value;
  }
  float* data() { return data_; }

 private:
  Device& device_;
  int replica_;
  std::size_t count_;
  float* data_;
};

// Terms under the addition that joins i and j.
std::size_t joined(const SummationTree& tree, std::size_t i, std::size_t j) {
  std::size_t least = 0;
  for (const SummationTree::Node& node : tree.nodes) {
    if (node.children.empty() || (least != 0 && node.terms >= least)) continue;
    bool has_i = false, has_j = false;
    std::vector<std::size_t> below = node.children;
    while (!below.empty()) {
      const SummationTree::Node& each = tree.nodes[below.back()];
      below.pop_back();
      below.insert(below.end(), each.children.begin(), each.children.end());
      if (!each.children.empty()) continue;
      has_i = has_i || each.term == i;
      has_j = has_j || each.term == j;
    }
    if (has_i && has_j) least = node.terms;
  }
  return least;
}

// One sum of an operation on one replica, among `channels` of which it is that of the last; a mean
// is multiplied by its count again.
class SumOnDevice {
 public:
  SumOnDevice(Device& device, const DeviceSum& sum, int replica, std::size_t terms,
              std::size_t channels)
      : device_(device),
        sum_(sum),
        replica_(replica),
        terms_(terms),
        channels_(channels),
        values_(terms * channels),
        x_(device, replica, terms * channels),
        weight_(device, replica, terms),
        y_(device, replica, channels) {
    weight_.fill(1.0F);
  }

  double operator()(std::span<const float> terms) {
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const std::size_t image = i / sum_.length, pixel = i % sum_.length;
      values_[(image * channels_ + channels_ - 1) * sum_.length + pixel] = terms[i];
    }
    x_.fill(values_);
    switch (sum_.operation) {
      case Operation::channel_mean:
        device_.channel_mean({replica_, x_.data(), y_.data(), sum_.batch, channels_, sum_.length});
        break;
      case Operation::global_average_pool:
        device_.global_average_pool({replica_, x_.data(), y_.data(), 1, channels_, terms_});
        break;
      case Operation::convolution:
        device_.convolution({replica_, x_.data(), weight_.data(), nullptr, y_.data(), 1, terms_, 1,
                             1, 1, 1, 1, 0, 0, 1, 1});
        return static_cast<double>(y_.at(0));
      default:
        device_.dense({replica_, x_.data(), weight_.data(), nullptr, y_.data(), 1, terms_, 1});
        return static_cast<double>(y_.at(0));
    }
    return static_cast<double>(terms_) * static_cast<double>(y_.at(channels_ - 1));
  }

 private:
  Device& device_;
  const DeviceSum& sum_;
  int replica_;
  std::size_t terms_, channels_;
  std::vector<float> values_;
  Array x_, weight_, y_;
};

std::optional<SummationTree> order_on(Device& device, const DeviceSum& sum, int replica,
                                      std::size_t terms) {
  SumOnDevice run(device, sum, replica, terms, 1);
  return learn_order(
      terms, [&](std::span<const float> values) { return run(values); }, kCallsATerm * terms);
}

// Whether random pairs of terms are joined as in the tree where there are more channels.
bool is_order_of(const SummationTree& tree, Device& device, const DeviceSum& sum, int replica,
                 std::size_t terms, std::size_t channels) {
  SumOnDevice run(device, sum, replica, terms, channels);
  Random random(channels, "pairs of terms");
  for (int pair = 0; pair < kPairs && terms > 1; ++pair) {
    const std::size_t i = random.below(terms);
    const std::size_t j = (i + 1 + random.below(terms - 1)) % terms;
    std::vector<float> values(terms, 1.0F);
    values[i] = kHuge;
    values[j] = -kHuge;
    const double left = run(values);
    if (!(std::abs(left - static_cast<double>(terms - joined(tree, i, j))) <= 0.25)) return false;
  }
  return true;
}

// The all-reduced mean as replica `replica` has it.
std::optional<SummationTree> order_of_replicas(Device& device, int replica) {
  const auto replicas = static_cast<std::size_t>(device.replicas());
  std::vector<std::unique_ptr<Array>> send, receive;
  AllReduceMeanCall call{{}, {}, 1};
  for (int r = 0; r < device.replicas(); ++r) {
    send.push_back(std::make_unique<Array>(device, r, 1));
    receive.push_back(std::make_unique<Array>(device, r, 1));
    call.send.push_back(send.back()->data());
    call.receive.push_back(receive.back()->data());
  }
  const auto run = [&](std::span<const float> values) {
    for (std::size_t r = 0; r < replicas; ++r) send[r]->fill(values.subspan(r, 1));
    device.all_reduce_mean(call);
    return static_cast<double>(replicas) *
           static_cast<double>(receive[static_cast<std::size_t>(replica)]->at(0));
  };
  return learn_order(replicas, run, kCallsATerm * replicas);
}

std::size_t terms_of(const Device& device, const DeviceSum& sum) {
  switch (sum.operation) {
    case Operation::channel_mean:
      return sum.batch * sum.length;
    case Operation::global_average_pool:
    case Operation::convolution:
    case Operation::dense:
      return sum.length;
    case Operation::all_reduce_mean:
      return static_cast<std::size_t>(device.replicas());
    default:
      throw std::invalid_argument(to_string(sum.operation) + " has no sum whose order is learned");
  }
}

class LearnedLanes final : public ForwardingDevice {
 public:
  LearnedLanes(std::unique_ptr<Device> base, std::vector<ProbedSum> sums)
      : ForwardingDevice(std::move(base)), sums_(std::move(sums)) {}

  Contract contract(Operation operation, std::size_t batch, std::size_t plane) const override {
    Contract contract = ForwardingDevice::contract(operation, batch, plane);
    for (const ProbedSum& probed : sums_) {
      const bool mean = operation == Operation::channel_mean && probed.sum.batch == batch;
      const bool pool = operation == Operation::global_average_pool;
      if (contract.lanes != 1 || probed.sum.operation != operation || !(mean || pool) ||
          probed.sum.length != plane) {
        continue;
      }
      contract.lanes = probed.lanes;
    }
    return contract;
  }

 private:
  std::vector<ProbedSum> sums_;
};

}  // namespace

std::string to_string(const SummationTree& tree) {
  std::string text;
  write(tree, tree.root, text);
  return text;
}

std::size_t lanes_of(const SummationTree& tree) {
  Sizes own;
  for (const SummationTree::Node& node : tree.nodes) {
    if (!node.children.empty()) own.add(static_cast<double>(node.terms));
  }
  const std::size_t terms = tree.nodes[tree.root].terms;
  std::size_t lanes = 1;
  Sizes nearest = sizes_of_lanes(terms, 1);
  for (std::size_t more = 2; more <= terms; more *= 2) {
    const Sizes sizes = sizes_of_lanes(terms, more);
    const bool bounds = sizes.linear >= own.linear && sizes.square >= own.square;
    if (!bounds || sizes.square >= nearest.square) continue;
    nearest = sizes;
    lanes = more;
  }
  return lanes;
}

std::optional<SummationTree> learn_order(std::size_t terms, const SumOfTerms& sum,
                                         std::size_t most_calls) {
  if (terms == 0) return std::nullopt;
  return Learner(terms, sum, most_calls).learn();
}

std::vector<ProbedSum> probe_sums(Device& device, std::span<const DeviceSum> sums) {
  std::vector<ProbedSum> result;
  for (const DeviceSum& sum : sums) {
    const std::size_t terms = terms_of(device, sum);
    const auto order = [&](int replica) {
      return sum.operation == Operation::all_reduce_mean ? order_of_replicas(device, replica)
                                                         : order_on(device, sum, replica, terms);
    };
    ProbedSum probed{sum, terms, order(0), 1};
    for (int r = 0; r < device.replicas(); ++r) {
      const auto once = r == 0 ? probed.tree : order(r);
      probed.varies_between_runs |= !same(once, order(r));
      probed.varies_between_replicas |= !same(once, probed.tree);
    }
    for (const std::size_t channels : sum.channels) {
      for (int r = 0; probed.tree && !probed.varies() && r < device.replicas(); ++r) {
        probed.varies_with_channels = !is_order_of(*probed.tree, device, sum, r, terms, channels);
      }
    }
    if (probed.tree && !probed.varies()) probed.lanes = lanes_of(*probed.tree);
    result.push_back(std::move(probed));
  }
  return result;
}

std::string describe(const ProbedSum& sum) {
  std::string text = to_string(sum.sum.operation) + " of " + std::to_string(sum.terms) + " terms: ";
  if (!sum.tree) return text + "no order found";
  text += std::to_string(sum.lanes) + (sum.lanes == 1 ? " lane" : " lanes");
  if (sum.varies_between_runs) return text + "; varies between runs";
  if (sum.varies_between_replicas) return text + "; varies between replicas";
  if (sum.varies_with_channels) return text + "; varies with the number of channels";
  return text + "; the same on all replicas and in both runs";
}

std::unique_ptr<Device> with_learned_lanes(std::unique_ptr<Device> device,
                                           std::vector<ProbedSum> sums) {
  return std::make_unique<LearnedLanes>(std::move(device), std::move(sums));
}

}  // namespace shardproof
