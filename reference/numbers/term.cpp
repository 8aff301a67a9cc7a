#include "reference/numbers/term.h"

#include <bit>
#include <stdexcept>

namespace shardproof {

TermStore::TermStore() : table_(64, kNone), mask_(table_.size() - 1) {}

Term TermStore::constant(const Rational& x) {
  const auto [place, is_new] =
      constant_indices_.try_emplace(x, static_cast<std::uint32_t>(constants_.size()));
  if (is_new) constants_.push_back(x);
  return node({kConstant, {place->second, 0, 0}});
}

void TermStore::reserve(std::size_t terms) {
  nodes_.reserve(terms);
  const std::size_t places = std::bit_ceil(2 * terms);
  if (places <= table_.size()) return;
  table_.assign(places, kNone);
  mask_ = places - 1;
  for (std::uint32_t index = 0; index < nodes_.size(); ++index) {
    std::size_t place = hash(nodes_[index]) & mask_;
    while (table_[place] != kNone) place = (place + 1) & mask_;
    table_[place] = index;
  }
}

Term TermStore::added(const Node& node, std::size_t place) {
  const std::size_t index = nodes_.size();
  if (index >= kNone) throw std::length_error("more terms than a store can hold");
  table_[place] = static_cast<std::uint32_t>(index);
  nodes_.push_back(node);
  if (2 * nodes_.size() > table_.size()) reserve(2 * nodes_.size());
  return Term{static_cast<std::uint32_t>(index)};
}

std::string TermStore::print(Term term, const Names& names, std::size_t depth) const {
  const Node& node = nodes_.at(term.index);
  if (node.symbol == kVariable) return names.variable(node.operands[0]);
  if (node.symbol == kConstant) return constants_[node.operands[0]].str();
  if (depth == 0) return "…";
  std::string text = names.symbol(node.symbol);
  for (std::size_t i = 0; i < 3 && node.operands[i] != kNone; ++i) {
    text += (i == 0 ? "(" : ", ") + print(Term{node.operands[i]}, names, depth - 1);
  }
  return text + ")";
}

}  // namespace shardproof
