// Arithmetic<T>: what each value function (value_function.h) means for values of type T. Spec §1's
// identities hold whatever they mean; these are the meanings that programs are run with.
//
// Each has a member constant(x), the value of an exact constant, and one for every other function,
// named after it; with_operation picks one by its ValueFunction.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "reference/numbers/bfloat16.h"
#include "reference/numbers/float16.h"
#include "reference/numbers/interval.h"
#include "reference/numbers/nearest.h"
#include "reference/numbers/rational.h"
#include "reference/numbers/term.h"
#include "reference/slots/value_function.h"

namespace shardproof {

template <class T>
struct Arithmetic;

// float32 and float64 by IEEE 754: every operation, and every constant, rounds once to nearest.
template <std::floating_point T>
struct Arithmetic<T> {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

  static T constant(const Rational& x) {
    if constexpr (sizeof(T) == 4) {
      return nearest_float32(x);
    } else {
      return nearest_float64(x);
    }
  }
  static T negate(T a) { return -a; }
  static T square_root(T a) { return std::sqrt(a); }
  static T absolute(T a) { return std::abs(a); }
  static T sign(T a) { return static_cast<T>((0 < a) - (a < 0)); }
  static T add(T a, T b) { return a + b; }
  static T subtract(T a, T b) { return a - b; }
  static T multiply(T a, T b) { return a * b; }
  static T divide(T a, T b) { return a / b; }
  // Equal numbers have equal bits, but for zeros; a sum with NaN is NaN.
  static T minimum(T a, T b) {
    if (a == b) return std::bit_cast<T>(std::bit_cast<Bits>(a) | std::bit_cast<Bits>(b));
    return a < b ? a : b < a ? b : a + b;
  }
  static T maximum(T a, T b) {
    if (a == b) return std::bit_cast<T>(std::bit_cast<Bits>(a) & std::bit_cast<Bits>(b));
    return a > b ? a : b > a ? b : a + b;
  }
  static T less(T a, T b) { return static_cast<T>(a < b); }
  static T less_equal(T a, T b) { return static_cast<T>(a <= b); }
  static T equal(T a, T b) { return static_cast<T>(a == b); }
  static T not_equal(T a, T b) { return static_cast<T>(a != b); }
  static T fused_multiply_add(T a, T b, T c) { return std::fma(a, b, c); }
  static T select(T a, T b, T c) { return a != 0 ? b : c; }
};

// bfloat16 and float16: every operation, and every constant, rounds once to nearest; what does not
// round keeps the bits.
template <class T>
requires std::same_as<T, BFloat16> || std::same_as<T, Float16>
struct Arithmetic<T> {
  static T constant(const Rational& x) {
    if constexpr (std::same_as<T, BFloat16>) {
      return nearest_bfloat16(x);
    } else {
      return nearest_float16(x);
    }
  }
  static T negate(T a) { return -a; }
  static T square_root(T a) { return sqrt(a); }
  static T absolute(T a) { return T::from_bits(a.bits() & 0x7fff); }
  static T sign(T a) { return T(Float32::sign(float(a))); }
  static T add(T a, T b) { return a + b; }
  static T subtract(T a, T b) { return a - b; }
  static T multiply(T a, T b) { return a * b; }
  static T divide(T a, T b) { return a / b; }
  static T minimum(T a, T b) { return T(Float32::minimum(float(a), float(b))); }
  static T maximum(T a, T b) { return T(Float32::maximum(float(a), float(b))); }
  static T less(T a, T b) { return T(Float32::less(float(a), float(b))); }
  static T less_equal(T a, T b) { return T(Float32::less_equal(float(a), float(b))); }
  static T equal(T a, T b) { return T(Float32::equal(float(a), float(b))); }
  static T not_equal(T a, T b) { return T(Float32::not_equal(float(a), float(b))); }
  static T fused_multiply_add(T a, T b, T c) { return fma(a, b, c); }
  static T select(T a, T b, T c) { return float(a) != 0 ? b : c; }

 private:
  using Float32 = Arithmetic<float>;
};

// Exact. x / 0 = 0, as in Lean's division rings; a square root that is not rational throws
// std::domain_error naming the number.
template <>
struct Arithmetic<Rational> {
  using T = Rational;
  static T constant(const Rational& x) { return x; }
  static T negate(const T& a) { return -a; }
  static T square_root(const T& a) { return shardproof::square_root(a); }
  static T absolute(const T& a) { return abs(a); }
  static T sign(const T& a) { return a.sign(); }
  static T add(const T& a, const T& b) { return a + b; }
  static T subtract(const T& a, const T& b) { return a - b; }
  static T multiply(const T& a, const T& b) { return a * b; }
  static T divide(const T& a, const T& b) { return b == 0 ? T(0) : T(a / b); }
  static T minimum(const T& a, const T& b) { return b < a ? b : a; }
  static T maximum(const T& a, const T& b) { return a < b ? b : a; }
  static T less(const T& a, const T& b) { return int{a < b}; }
  static T less_equal(const T& a, const T& b) { return int{a <= b}; }
  static T equal(const T& a, const T& b) { return int{a == b}; }
  static T not_equal(const T& a, const T& b) { return int{a != b}; }
  static T fused_multiply_add(const T& a, const T& b, const T& c) { return a * b + c; }
  static T select(const T& a, const T& b, const T& c) { return a != 0 ? b : c; }
};

// Wrapping whole numbers: modulo 2^32, x / 0 = 0, quotients and roots without their fraction. A
// constant loses its fraction, then wraps.
template <>
struct Arithmetic<std::uint32_t> {
  using T = std::uint32_t;
  static T constant(const Rational& x) {
    using Integer = boost::multiprecision::number<boost::multiprecision::gmp_int,
                                                  boost::multiprecision::et_off>;
    const Integer modulus = Integer(1) << 32U;
    const Integer whole = numerator(x) / denominator(x);
    return static_cast<T>(Integer((whole % modulus + modulus) % modulus));
  }
  static T negate(T a) { return T{0} - a; }
  static T square_root(T a) { return static_cast<T>(std::sqrt(static_cast<double>(a))); }
  static T absolute(T a) { return a; }
  static T sign(T a) { return T{a != 0}; }
  static T add(T a, T b) { return a + b; }
  static T subtract(T a, T b) { return a - b; }
  static T multiply(T a, T b) { return a * b; }
  static T divide(T a, T b) { return b == 0 ? 0 : a / b; }
  static T minimum(T a, T b) { return b < a ? b : a; }
  static T maximum(T a, T b) { return a < b ? b : a; }
  static T less(T a, T b) { return T{a < b}; }
  static T less_equal(T a, T b) { return T{a <= b}; }
  static T equal(T a, T b) { return T{a == b}; }
  static T not_equal(T a, T b) { return T{a != b}; }
  static T fused_multiply_add(T a, T b, T c) { return a * b + c; }
  static T select(T a, T b, T c) { return a != 0 ? b : c; }
};

// Enclosures of the exact result. Where a comparison, sign or selection is undecided, the hull of
// what it may be. A divisor that contains 0 and a root that reaches below 0 throw
// std::domain_error.
template <int Digits>
struct Arithmetic<Interval<Digits>> {
  using T = Interval<Digits>;
  static T constant(const Rational& x) { return T(x); }
  static T negate(const T& a) { return -a; }
  static T square_root(const T& a) { return T::square_root(a); }
  static T absolute(const T& a) { return T::maximum(T::maximum(a, -a), T(0)); }
  static T sign(const T& a) { return subtract(less(T(0), a), less(a, T(0))); }
  static T add(const T& a, const T& b) { return a + b; }
  static T subtract(const T& a, const T& b) { return a - b; }
  static T multiply(const T& a, const T& b) { return a * b; }
  static T divide(const T& a, const T& b) { return a / b; }
  static T minimum(const T& a, const T& b) { return T::minimum(a, b); }
  static T maximum(const T& a, const T& b) { return T::maximum(a, b); }
  static T less(const T& a, const T& b) {
    return decision(a.upper() < b.lower(), a.lower() >= b.upper());
  }
  static T less_equal(const T& a, const T& b) {
    return decision(a.upper() <= b.lower(), a.lower() > b.upper());
  }
  static T equal(const T& a, const T& b) {
    return decision(a.lower() == b.upper() && a.upper() == b.lower(), !meets(a, b));
  }
  static T not_equal(const T& a, const T& b) { return T(1) - equal(a, b); }
  static T fused_multiply_add(const T& a, const T& b, const T& c) { return a * b + c; }
  static T select(const T& a, const T& b, const T& c) {
    if (!a.contains(0.0)) return b;
    return a.lower() == a.upper() ? c : T::hull(b, c);
  }

 private:
  static T decision(bool holds, bool fails) { return T(holds ? 1.0 : 0.0, fails ? 0.0 : 1.0); }
};

// Expressions: every function is free, and applied to equal terms alone gives equal terms.
template <>
struct Arithmetic<Term> {
  using F = ValueFunction;
  using T = Term;
  explicit Arithmetic(TermStore& store) : store_(&store) {}

  T constant(const Rational& x) const { return store_->constant(x); }
  T negate(T a) const { return apply<F::negate>(a); }
  T square_root(T a) const { return apply<F::square_root>(a); }
  T absolute(T a) const { return apply<F::absolute>(a); }
  T sign(T a) const { return apply<F::sign>(a); }
  T add(T a, T b) const { return apply<F::add>(a, b); }
  T subtract(T a, T b) const { return apply<F::subtract>(a, b); }
  T multiply(T a, T b) const { return apply<F::multiply>(a, b); }
  T divide(T a, T b) const { return apply<F::divide>(a, b); }
  T minimum(T a, T b) const { return apply<F::minimum>(a, b); }
  T maximum(T a, T b) const { return apply<F::maximum>(a, b); }
  T less(T a, T b) const { return apply<F::less>(a, b); }
  T less_equal(T a, T b) const { return apply<F::less_equal>(a, b); }
  T equal(T a, T b) const { return apply<F::equal>(a, b); }
  T not_equal(T a, T b) const { return apply<F::not_equal>(a, b); }
  T fused_multiply_add(T a, T b, T c) const { return apply<F::fused_multiply_add>(a, b, c); }
  T select(T a, T b, T c) const { return apply<F::select>(a, b, c); }

 private:
  template <F function>
  T apply(T a, T b = {}, T c = {}) const {
    return store_->apply(static_cast<TermStore::Symbol>(function), arity(function), a, b, c);
  }

  TermStore* store_;
};

// The number of values that an operation takes, as a type.
template <std::size_t count>
using Takes = std::integral_constant<std::size_t, count>;

// body(Takes<n>, operation): the function's meaning over T, called with its n = 1, 2 or 3 values.
// Throws std::logic_error for `constant`, which reads none. Inlined always: a call for each
// assignment would cost as much as the assignment.
template <class T, class Body>
[[gnu::always_inline]] inline decltype(auto) with_operation(ValueFunction function,
                                                            const Arithmetic<T>& arithmetic,
                                                            Body&& body) {
  using F = ValueFunction;
  using V = const T&;
  switch (function) {
    case F::copy:
      return body(Takes<1>{}, [](V a) -> T { return a; });
    case F::negate:
      return body(Takes<1>{}, [&](V a) -> T { return arithmetic.negate(a); });
    case F::square_root:
      return body(Takes<1>{}, [&](V a) -> T { return arithmetic.square_root(a); });
    case F::absolute:
      return body(Takes<1>{}, [&](V a) -> T { return arithmetic.absolute(a); });
    case F::sign:
      return body(Takes<1>{}, [&](V a) -> T { return arithmetic.sign(a); });
    case F::add:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.add(a, b); });
    case F::subtract:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.subtract(a, b); });
    case F::multiply:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.multiply(a, b); });
    case F::divide:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.divide(a, b); });
    case F::minimum:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.minimum(a, b); });
    case F::maximum:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.maximum(a, b); });
    case F::less:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.less(a, b); });
    case F::less_equal:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.less_equal(a, b); });
    case F::equal:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.equal(a, b); });
    case F::not_equal:
      return body(Takes<2>{}, [&](V a, V b) -> T { return arithmetic.not_equal(a, b); });
    case F::fused_multiply_add:
      return body(Takes<3>{},
                  [&](V a, V b, V c) -> T { return arithmetic.fused_multiply_add(a, b, c); });
    case F::select:
      return body(Takes<3>{}, [&](V a, V b, V c) -> T { return arithmetic.select(a, b, c); });
    case F::constant:
      break;
  }
  throw std::logic_error("a constant has no operation");
}

}  // namespace shardproof
