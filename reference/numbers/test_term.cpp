#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "reference/numbers/random.h"
#include "reference/numbers/term.h"

namespace shardproof {
namespace {

const TermStore::Names names{[](TermStore::Symbol symbol) { return "f" + std::to_string(symbol); },
                             [](std::uint32_t index) { return "x" + std::to_string(index); }};

}  // namespace

TEST_CASE("equal expressions have equal terms, different ones different terms") {
  TermStore store;
  const Term x = store.variable(0), y = store.variable(1), half = store.constant(Rational("1/2"));
  CHECK(store.variable(0) == x);
  CHECK_FALSE(x == y);
  CHECK(store.constant(Rational("2/4")) == half);
  CHECK_FALSE(store.constant(Rational(0)) == x);
  const Term sum = store.apply(3, 2, x, y);
  CHECK(store.apply(3, 2, x, y) == sum);
  CHECK_FALSE(store.apply(3, 2, y, x) == sum);
  CHECK_FALSE(store.apply(4, 2, x, y) == sum);
  CHECK_FALSE(store.apply(3, 3, x, y, x) == sum);
  CHECK_FALSE(store.apply(3, 1, x) == sum);
  CHECK(store.size() == 9);
}

TEST_CASE("a printed term is the expression, cut at a depth") {
  TermStore store;
  const Term x = store.variable(7);
  const Term inner = store.apply(1, 2, x, store.constant(Rational("-1/3")));
  const Term outer = store.apply(2, 3, inner, x, store.apply(0, 1, inner));
  CHECK(store.print(x, names, 0) == "x7");
  CHECK(store.print(outer, names, 3) == "f2(f1(x7, -1/3), x7, f0(f1(x7, -1/3)))");
  CHECK(store.print(outer, names, 2) == "f2(f1(x7, -1/3), x7, f0(…))");
  CHECK(store.print(outer, names, 0) == "…");
}

TEST_CASE("terms of a grown store print as their expressions, and equal prints are equal terms") {
  TermStore store;
  Random random(1);
  std::vector<Term> terms;
  std::vector<std::string> texts;
  for (std::uint32_t i = 0; i < 3; ++i) {
    terms.push_back(store.variable(i));
    texts.push_back("x" + std::to_string(i));
  }
  for (int i = 0; i < 20'000; ++i) {
    // Small operands mostly, so that expressions come up again.
    const auto pick = [&] {
      return random.below(random.coin() ? 6 : std::min<std::size_t>(terms.size(), 300));
    };
    const std::size_t a = pick() % terms.size(), b = pick() % terms.size();
    const auto symbol = static_cast<TermStore::Symbol>(random.below(4));
    terms.push_back(store.apply(symbol, 2, terms[a], terms[b]));
    texts.push_back("f" + std::to_string(symbol) + "(" + texts[a] + ", " + texts[b] + ")");
  }
  std::map<std::string, Term> term_of;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const auto [place, is_new] = term_of.try_emplace(texts[i], terms[i]);
    REQUIRE(place->second == terms[i]);
    if (i % 16 == 0) REQUIRE(store.print(terms[i], names, 1000) == texts[i]);
  }
  CHECK(store.size() == term_of.size());
}

}  // namespace shardproof
