// Real: what the interpreter asks of a number type, so that one text of it serves all of them
// (spec §4 and §6; design, "Numbers"). + - * / and unary minus are the type's own operators; the
// rest are the function templates below, which call RealTraits<T>. A type specialises RealTraits
// once, and the functions then work for it whatever its namespace. No comparison is asked for:
// intervals have none, and ReLU and maximum act on their end points.
#pragma once

#include <cmath>
#include <concepts>

namespace shardproof {

template <class T>
struct RealTraits;

// The number itself; where T is narrower than float64, the nearest one, ties to even.
template <class T>
T from_double(double x) {
  return RealTraits<T>::from_double(x);
}

// x^(-1/2)
template <class T>
T rsqrt(const T& x) {
  return RealTraits<T>::rsqrt(x);
}

// max(x, 0); NaN stays NaN
template <class T>
T relu(const T& x) {
  return RealTraits<T>::relu(x);
}

// min(max(x, 0), 6); NaN stays NaN
template <class T>
T relu6(const T& x) {
  return RealTraits<T>::relu6(x);
}

// The larger of the two; NaN where either is NaN
template <class T>
T maximum(const T& a, const T& b) {
  return RealTraits<T>::maximum(a, b);
}

template <class T>
concept Real = std::semiregular<T> && std::constructible_from<T, int> &&
    requires(const T& a, const T& b, double d) {
  { a + b } -> std::same_as<T>;
  { a - b } -> std::same_as<T>;
  { a* b } -> std::same_as<T>;
  { a / b } -> std::same_as<T>;
  { -a } -> std::same_as<T>;
  { RealTraits<T>::from_double(d) } -> std::same_as<T>;
  { RealTraits<T>::rsqrt(a) } -> std::same_as<T>;
  { RealTraits<T>::relu(a) } -> std::same_as<T>;
  { RealTraits<T>::relu6(a) } -> std::same_as<T>;
  { RealTraits<T>::maximum(a, b) } -> std::same_as<T>;
};

// relu, relu6 and maximum for a type whose order is decidable; x != x is how NaN shows.
template <class T>
struct OrderedTraits {
  static T relu(const T& x) { return x < T(0) ? T(0) : x; }
  static T relu6(const T& x) { return T(6) < x ? T(6) : relu(x); }
  static T maximum(const T& a, const T& b) {
    if (b != b) return b;
    return a < b ? b : a;
  }
};

// IEEE float32 and float64, every operation rounded to nearest; the root and the division of rsqrt
// round one after the other.
template <std::floating_point T>
struct RealTraits<T> : OrderedTraits<T> {
  static T from_double(double x) { return static_cast<T>(x); }
  static T rsqrt(T x) { return T(1) / std::sqrt(x); }
};

static_assert(Real<float> && Real<double>);

}  // namespace shardproof
