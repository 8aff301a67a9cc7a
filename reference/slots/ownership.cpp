#include "reference/slots/ownership.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <stdexcept>

namespace shardproof {
namespace {

void need_an_owner(std::size_t owners) {
  if (owners == 0) throw std::invalid_argument("blocks and whole parameters need an owner");
}

}  // namespace

Ownership mod_ownership(std::size_t coordinates, std::size_t owners) {
  Ownership ownership{owners == 0 ? std::max<std::size_t>(coordinates, 1) : owners, {}};
  ownership.owner_of.reserve(coordinates);
  for (std::size_t i = 0; i < coordinates; ++i) {
    ownership.owner_of.push_back(coordinate_owner(owners, static_cast<Coordinate>(i)));
  }
  return ownership;
}

Ownership block_ownership(std::size_t coordinates, std::size_t owners) {
  need_an_owner(owners);
  Ownership ownership{owners, {}};
  ownership.owner_of.reserve(coordinates);
  const std::size_t block = (coordinates + owners - 1) / owners;
  for (std::size_t i = 0; i < coordinates; ++i) {
    ownership.owner_of.push_back(static_cast<Owner>(i / block));
  }
  return ownership;
}

Ownership greedy_ownership(std::span<const std::size_t> sizes, std::size_t owners) {
  need_an_owner(owners);
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::size_t> load(owners, 0);
  std::vector<Owner> owner_of_parameter(sizes.size());
  for (const std::size_t parameter : order) {
    const auto lightest = std::min_element(load.begin(), load.end());
    *lightest += sizes[parameter];
    owner_of_parameter[parameter] = static_cast<Owner>(lightest - load.begin());
  }
  Ownership ownership{owners, {}};
  for (std::size_t parameter = 0; parameter < sizes.size(); ++parameter) {
    ownership.owner_of.insert(ownership.owner_of.end(), sizes[parameter],
                              owner_of_parameter[parameter]);
  }
  return ownership;
}

Result<Ownership> read_ownership(const std::string& name, std::string_view text,
                                 std::size_t coordinates, std::size_t owners) {
  Ownership ownership{owners, {}};
  std::size_t line = 1, line_start = 0, at = 0;
  const auto error = [&](std::size_t place, const std::string& what) {
    return Error{name + ":" + std::to_string(line) + ":" + std::to_string(place - line_start + 1) +
                 ": " + what};
  };
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (at < text.size()) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '\n') {
      ++line;
      line_start = ++at;
    } else if (space(text[at])) {
      ++at;
    } else {
      std::size_t end = at;
      while (end < text.size() && !space(text[end]) && text[end] != '#') ++end;
      // The word may be anything, so a message shows its beginning only.
      const std::string word(text.substr(at, std::min<std::size_t>(end - at, 40)));
      Owner owner = 0;
      const auto [stop, status] = std::from_chars(text.data() + at, text.data() + end, owner);
      const bool too_large = status == std::errc::result_out_of_range;
      if (stop != text.data() + end || (status != std::errc() && !too_large)) {
        return error(at, "'" + word + "' is no whole number; give the owner of each coordinate");
      }
      if (too_large || owner >= owners) {
        return error(at, "there is no owner " + word + "; " + std::to_string(owners) +
                             " owners are numbered from 0");
      }
      if (ownership.owner_of.size() == coordinates) {
        return error(at, "more numbers than the " + std::to_string(coordinates) +
                             " coordinates; give one for each");
      }
      ownership.owner_of.push_back(owner);
      at = end;
    }
  }
  if (ownership.owner_of.size() < coordinates) {
    return error(at, std::to_string(ownership.owner_of.size()) + " numbers for " +
                         std::to_string(coordinates) + " coordinates; give one for each");
  }
  return ownership;
}

}  // namespace shardproof
