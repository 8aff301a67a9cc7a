#include "device/engine/fused_step.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "device/kernels/fused_steps.cuh"

namespace shardproof {

// A value as an expression of what stood in the slots before the run; a number into `Expressions`.
// Its operators are those that the text of a fused step uses. They lie in this namespace, so that
// the text finds them by its arguments.
namespace expressions {

struct Node {
  ValueFunction function = ValueFunction::copy;
  std::array<std::size_t, 3> reads{};
  // Of a leaf, which reads nothing:
  bool leaf = false;
  ArraySlot slot{};
};

struct Value {
  std::vector<Node>* nodes = nullptr;
  std::size_t node = 0;
};

Value make(std::vector<Node>& nodes, const Node& node) {
  nodes.push_back(node);
  return {&nodes, nodes.size() - 1};
}

Value make(ValueFunction function, Value a, Value b = {}, Value c = {}) {
  return make(*a.nodes, {function, {a.node, b.node, c.node}, false, {}});
}

Value operator+(Value a, Value b) { return make(ValueFunction::add, a, b); }
Value operator-(Value a, Value b) { return make(ValueFunction::subtract, a, b); }
Value operator*(Value a, Value b) { return make(ValueFunction::multiply, a, b); }
Value operator/(Value a, Value b) { return make(ValueFunction::divide, a, b); }
Value square_root(Value a) { return make(ValueFunction::square_root, a); }
Value sign(Value a) { return make(ValueFunction::sign, a); }
Value select(Value condition, Value then, Value otherwise) {
  return make(ValueFunction::select, condition, then, otherwise);
}

}  // namespace expressions

namespace {

using expressions::Node;
using expressions::Value;

// The slots that a list of assignments writes, each with the expression it ends with.
std::map<std::uint16_t, Value> written_by(const std::vector<ArrayAssignment>& assignments,
                                          std::vector<Node>& nodes) {
  std::map<std::uint16_t, Value> written;
  std::map<ArraySlot, Value> leaves;
  const auto read = [&](ArraySlot slot) {
    if (slot.scope == Scope::coordinate) {
      if (const auto found = written.find(slot.index); found != written.end()) {
        return found->second;
      }
    }
    const auto [leaf, fresh] = leaves.try_emplace(slot);
    if (fresh) leaf->second = make(nodes, {ValueFunction::copy, {}, true, slot});
    return leaf->second;
  };
  for (const ArrayAssignment& assignment : assignments) {
    std::array<Value, 3> reads{};
    for (std::size_t k = 0; k < arity(assignment.function); ++k) {
      reads[k] = read(assignment.reads[k]);
    }
    written[assignment.target.index] =
        assignment.function == ValueFunction::copy
            ? reads[0]
            : make(nodes,
                   {assignment.function, {reads[0].node, reads[1].node, reads[2].node}, false, {}});
  }
  return written;
}

// Matches a kernel's expressions with a program's, binding the kernel's leaves to slots.
template <class Step>
class Matcher {
 public:
  Matcher() {
    for (std::uint16_t k = 0; k < Step::fields; ++k) {
      field_[k] = make(nodes_, {ValueFunction::copy, {}, true, {Scope::coordinate, k}});
    }
    std::array<Value, Step::scalars> scalar{};
    for (std::uint16_t k = 0; k < Step::scalars; ++k) {
      scalar[k] = make(nodes_, {ValueFunction::copy, {}, true, {Scope::shared, k}});
    }
    Step::step(field_.data(), scalar.data());
  }

  std::optional<FusedStep> match(FusedKernel kernel, const std::map<std::uint16_t, Value>& written,
                                 const std::vector<Node>& program, const std::vector<bool>& kept) {
    std::vector<std::uint16_t> targets;
    for (const auto& [slot, value] : written) {
      if (kept.at(slot)) targets.push_back(slot);
    }
    if (targets.size() != static_cast<std::size_t>(Step::written)) return std::nullopt;
    // Which of the kernel's written fields each of them is: tried in every order, there are few.
    do {
      bound_.fill(std::nullopt);
      bound_scalars_.fill(std::nullopt);
      bool equal = true;
      for (std::size_t k = 0; equal && k < targets.size(); ++k) {
        equal = bind(field_leaf(k), {Scope::coordinate, targets[k]}) &&
                matches(field_[k].node, program, written.at(targets[k]).node);
      }
      if (equal && all_bound(written, kept)) return result(kernel);
    } while (std::next_permutation(targets.begin(), targets.end()));
    return std::nullopt;
  }

 private:
  static Node field_leaf(std::size_t k) {
    return {ValueFunction::copy, {}, true, {Scope::coordinate, static_cast<std::uint16_t>(k)}};
  }

  bool bind(const Node& leaf, ArraySlot slot) {
    const bool scalar = leaf.slot.scope == Scope::shared;
    const bool fits = scalar ? slot.scope == Scope::shared || slot.scope == Scope::parameter
                             : slot.scope == Scope::coordinate;
    if (!fits) return false;
    std::optional<ArraySlot>& bound =
        scalar ? bound_scalars_[leaf.slot.index] : bound_[leaf.slot.index];
    if (!bound) bound = slot;
    return !(*bound < slot) && !(slot < *bound);
  }

  bool matches(std::size_t mine, const std::vector<Node>& program, std::size_t theirs) {
    const Node& a = nodes_[mine];
    const Node& b = program[theirs];
    if (a.leaf != b.leaf) return false;
    if (a.leaf) return bind(a, b.slot);
    if (a.function != b.function) return false;
    for (std::size_t k = 0; k < arity(a.function); ++k) {
      if (!matches(a.reads[k], program, b.reads[k])) return false;
    }
    return true;
  }

  // Every field is a slot of its own, in memory, and those only read are not written.
  bool all_bound(const std::map<std::uint16_t, Value>& written,
                 const std::vector<bool>& kept) const {
    for (std::size_t k = 0; k < bound_.size(); ++k) {
      if (!bound_[k] || !kept.at(bound_[k]->index)) return false;
      if (k >= Step::written && written.count(bound_[k]->index) != 0) return false;
      for (std::size_t other = 0; other < k; ++other) {
        if (bound_[other]->index == bound_[k]->index) return false;
      }
    }
    return std::all_of(bound_scalars_.begin(), bound_scalars_.end(),
                       [](const auto& slot) { return slot.has_value(); });
  }

  FusedStep result(FusedKernel kernel) const {
    FusedStep step{kernel, {}, {}};
    for (const auto& slot : bound_) step.fields.push_back(slot->index);
    for (const auto& slot : bound_scalars_) step.scalars.push_back(*slot);
    return step;
  }

  std::vector<Node> nodes_;
  std::array<Value, Step::fields> field_{};
  std::array<std::optional<ArraySlot>, Step::fields> bound_{};
  std::array<std::optional<ArraySlot>, Step::scalars> bound_scalars_{};
};

}  // namespace

std::optional<FusedStep> fused_step(const std::vector<ArrayAssignment>& assignments,
                                    const std::vector<bool>& kept) {
  std::vector<Node> nodes;
  const std::map<std::uint16_t, Value> written = written_by(assignments, nodes);
  if (auto step = Matcher<host::AdamW>().match(FusedKernel::adamw, written, nodes, kept)) {
    return step;
  }
  if (auto step = Matcher<host::Momentum>().match(FusedKernel::momentum, written, nodes, kept)) {
    return step;
  }
  return Matcher<host::Lion>().match(FusedKernel::lion, written, nodes, kept);
}

}  // namespace shardproof
