#include "reference/graph/double_double_products.h"

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reference/graph/parallel.h"
#include "reference/graph/product_tiles.h"
#include "reference/graph/vectors.h"

namespace shardproof {
namespace {

// How a product of K terms is sliced.
//
// A line (a row of W, a column of X) of norm n is cut at level 0 into multiples of its lsb l₀, the
// least power of two with n ≤ C·l₀, C = 2^26.49. What remains of each number is at most l₀/2, so of
// norm √K/2·l₀, and level 1 is cut at l₁ likewise; l₁/l₀ and all later ratios are one power of two,
// `step`. Every partial sum of a product of slices is a multiple of both lsbs' product, and at most
// (C + √K/2)² < 2^53 of them by Cauchy and Schwarz: exact in float64.
//
// W = W₀ + W₁ + R, R exact and sparse (float32 numbers far below their row's norm); X = X₀ + … + X₄
// and a rest. Left out are W₁·X₄, R times what follows X₂, and W times the rest, together at most
// (K/2·step³ + √K/2·C·step⁴)·l₀(row)·l₀(column).
struct Slicing {
  static constexpr std::size_t x_slices = 5;
  static constexpr std::size_t sparse_slices = 3;  // slices of X that R is multiplied by

  double step;
  double left_out;  // in units of l₀(row)·l₀(column)

  explicit Slicing(std::size_t terms) {
    const double half_root = std::sqrt(static_cast<double>(terms)) / 2 * (1 + 0x1p-20);
    step = lsb(half_root);
    left_out = (static_cast<double>(terms) / 2 * step * step * step +
                half_root / share * step * step * step * step) *
               (1 + 0x1p-20);
  }

  static constexpr double share = 0x1.6c9p-27;  // 1/C, just above 2^-26.49
  // A power of two of at least norm/C, less than twice that.
  static double lsb(double norm) {
    int exponent = 0;
    std::frexp(norm * share, &exponent);
    return std::ldexp(1.0, exponent);
  }
};

// The nearest multiple of l to x, for |x| ≤ 2^51·l; `rounder` is 1.5·2^52·l.
template <class T>
T nearest_multiple(const T& x, const T& rounder) {
  return (x + rounder) - rounder;
}
constexpr double rounder_of_one = 0x1.8p52;

template <class T>
void two_sum(const T& a, const T& b, T& sum, T& error) {  // sum may be a, error may be b
  const T s = a + b;
  const T b_part = s - a;
  error = (a - (s - b_part)) + (b - b_part);
  sum = s;
}

// A sum in three float64 parts: high takes each addend, low what high rounds off, lowest what low
// does; adding n numbers errs by n³·2^-159 of the sum of their magnitudes. T is double or Double4.
template <class T>
struct TripleSum {
  T high{}, low{}, lowest{};

  void add(const T& x) {
    T error, error_of_low;
    two_sum(high, x, high, error);
    two_sum(low, error, low, error_of_low);
    lowest += error_of_low;
  }
  // The sum as high + low of a DoubleDouble.
  void round(T& rounded, T& rest) const {
    T a, b;
    two_sum(high, low, a, b);
    two_sum(a, b + lowest, rounded, rest);
  }
};

// w·x for a float32 number w, in addends: w·x.high exactly, from halves of x.high that keep the
// products within 53 bits, and w·x.low rounded, an error of 2^-106 of the term.
template <class T>
void add_term(TripleSum<T>& sum, const T& w, const T& high, const T& low) {
  const T scaled = high * (0x1p27 + 1);  // Veltkamp's splitting: 26 bits and 26
  const T upper = scaled - (scaled - high);
  sum.add(w * upper);
  sum.add(w * (high - upper));
  sum.add(w * low);
}

struct SparseEntry {
  std::size_t term;
  double value;
};

struct SlicedWeight {
  std::vector<double> value;             // [rows × terms]
  std::vector<double> slices;            // for each row block of the cuts: its W₀, then its W₁
  std::vector<float> scaled_magnitudes;  // |w| / (C·l₀), rounded; zero where a row cannot be sliced
  std::vector<std::vector<SparseEntry>> rest;  // R, one list a row
  std::vector<double> lsb;                     // l₀
};

constexpr double scale = 0x1p-26;  // brings lines of norm C·l₀ near 1

SlicedWeight slice_weight(const ProductGeometry& g, std::span<const float> weight,
                          const Slicing& slicing, std::size_t block, unsigned threads) {
  const std::size_t rows = g.y.c, k = g.terms();
  SlicedWeight sliced{std::vector<double>(rows * k),
                      std::vector<double>(2 * rows * k),
                      std::vector<float>(rows * k),
                      {},
                      std::vector<double>(rows)};
  sliced.rest.resize(rows);
  parallel_for(threads, rows, [&](std::size_t row) {
    double* values = &sliced.value[row * k];
    double squares = 0;
    for (std::size_t i = 0; i < k; ++i) {
      values[i] = g.kind == ProductKind::dense ? weight[i * rows + row] : weight[row * k + i];
      squares += values[i] * values[i];
    }
    const double norm = std::sqrt(squares) * (1 + 0x1p-20);
    if (!(norm > 0 && norm < std::numeric_limits<double>::infinity())) return;
    const double lsb = Slicing::lsb(norm);
    const double rounder = rounder_of_one * lsb, rounder1 = rounder * slicing.step;
    sliced.lsb[row] = lsb;
    const std::size_t first = row / block * block, height = std::min(block, rows - first);
    double* slice0 = &sliced.slices[(2 * first + row - first) * k];
    double* slice1 = slice0 + height * k;
    for (std::size_t i = 0; i < k; ++i) {
      slice0[i] = nearest_multiple(values[i], rounder);
      const double remains = values[i] - slice0[i];
      slice1[i] = nearest_multiple(remains, rounder1);
      if (remains != slice1[i]) sliced.rest[row].push_back({i, remains - slice1[i]});
      sliced.scaled_magnitudes[row * k + i] =
          static_cast<float>(std::fabs(values[i]) * (scale / lsb));
    }
  });
  return sliced;
}

// Scratch of one worker. X's parts and slices are [terms × stride].
struct SliceScratch {
  Scratch<DoubleDouble> line;
  Scratch<double> high, low;
  std::array<Scratch<double>, Slicing::x_slices> slices, products;
  Scratch<float> x_magnitudes, magnitudes;
  Scratch<double> norm, lsb, to_one, results, rests;
  Scratch<std::size_t> destination;  // of a column in y, at channel 0

  SliceScratch(std::size_t k, std::size_t rows, std::size_t stride)
      : line(stride),
        high(k * stride),
        low(k * stride),
        x_magnitudes(k * stride),
        magnitudes(rows * stride),
        norm(stride),
        lsb(stride),
        to_one(stride),
        results(stride),
        rests(stride),
        destination(stride) {
    for (auto& slice : slices) slice = Scratch<double>(k * stride);
    for (std::size_t j = 0; j < Slicing::x_slices; ++j) {
      products[j] = Scratch<double>((j + 1 < Slicing::x_slices ? 2 : 1) * rows * stride);
    }
  }
};

// Fills scratch.high, .low, .slices, .x_magnitudes and .lsb from the tile's columns.
void slice_operand(const ProductGeometry& g, std::span<const std::span<const DoubleDouble>> x,
                   const Slicing& slicing, const ProductCut& cut, std::size_t stride,
                   SliceScratch& scratch) {
  const std::size_t k = g.terms();
  std::fill_n(scratch.norm.at(0), stride, 0.0);
  for (std::size_t term = 0; term < k; ++term) {
    DoubleDouble* line = scratch.line.at(0);
    gather_term(g, x, term, cut.first_column, cut.columns, line);
    std::fill(line + cut.columns, line + stride, DoubleDouble());
    double* high = scratch.high.at(term * stride);
    double* low = scratch.low.at(term * stride);
    for (std::size_t c = 0; c < stride; ++c) {
      high[c] = line[c].high;
      low[c] = line[c].low;
    }
    for (std::size_t c = 0; c < stride; c += 4) {
      const Double4 v = load<Double4>(high + c);
      store(scratch.norm.at(c), load<Double4>(scratch.norm.at(c)) + v * v);
    }
  }
  for (std::size_t c = 0; c < stride; ++c) {
    const double norm = std::sqrt(*scratch.norm.at(c)) * (1 + 0x1p-20);
    // Outside this range squares or slices might leave float64's; such columns are not sliced.
    const bool usable = norm > 0x1p-400 && norm < 0x1p400;
    *scratch.lsb.at(c) = usable ? Slicing::lsb(norm) : 0;
    *scratch.to_one.at(c) = usable ? scale / Slicing::lsb(norm) : 0;
  }
  for (std::size_t term = 0; term < k; ++term) {
    for (std::size_t c = 0; c < stride; c += 4) {
      const std::size_t at = term * stride + c;
      Double4 remains = load<Double4>(scratch.high.at(at)), low = load<Double4>(scratch.low.at(at));
      store(
          scratch.x_magnitudes.at(at),
          __builtin_convertvector(absolute(remains) * load<Double4>(scratch.to_one.at(c)), Float4));
      const Double4 lsb = load<Double4>(scratch.lsb.at(c));
      Double4 rounder = rounder_of_one * lsb;
      for (auto& slice : scratch.slices) {
        const Double4 cut_off = nearest_multiple(remains, rounder);
        store(slice.at(at), lsb == 0 ? lsb : cut_off);
        two_sum(remains - cut_off, low, remains, low);
        rounder *= slicing.step;
      }
    }
  }
}

DoubleDouble sum_term_by_term(const double* w, const double* high, const double* low,
                              std::size_t terms, std::size_t stride) {
  TripleSum<double> sum;
  for (std::size_t i = 0; i < terms; ++i) add_term(sum, w[i], high[i * stride], low[i * stride]);
  DoubleDouble result;
  sum.round(result.high, result.low);
  return result;
}

void matrix_tile(const ProductGeometry& g, std::span<const std::span<const DoubleDouble>> x,
                 const SlicedWeight& weight, const Slicing& slicing, const ProductCut& cut,
                 SliceScratch& scratch, std::span<DoubleDouble> y) {
  constexpr std::size_t last = Slicing::x_slices - 1;
  const std::size_t k = g.terms(), stride = round_up(cut.columns, lanes);
  slice_operand(g, x, slicing, cut, stride, scratch);
  for (std::size_t j = 0; j <= last; ++j) {
    multiply(&weight.slices[2 * cut.first_row * k], scratch.slices[j].at(0),
             scratch.products[j].at(0), (j < last ? 2 : 1) * cut.rows, k, cut.columns, stride);
  }
  multiply(&weight.scaled_magnitudes[cut.first_row * k], scratch.x_magnitudes.at(0),
           scratch.magnitudes.at(0), cut.rows, k, cut.columns, stride);
  // `magnitudes` is Σ|t| · scale²/(l₀·l₀), but for K + 5 roundings of 2^-24; what the slices leave
  // out may be 2^-101 of it.
  const auto enough = static_cast<float>(slicing.left_out * scale * scale * 0x1p101 *
                                         (1 + static_cast<double>(k + 8) * 0x1p-23));
  const std::size_t pixels = g.y.plane();
  for (std::size_t c = 0; c < cut.columns; ++c) {
    const std::size_t column = cut.first_column + c;
    *scratch.destination.at(c) = column / pixels * g.y.example() + column % pixels;
  }
  for (std::size_t r = 0; r < cut.rows; ++r) {
    const std::size_t row = cut.first_row + r;
    for (std::size_t c = 0; c < cut.columns; c += 4) {
      TripleSum<Double4> sum;
      for (const SparseEntry& entry : weight.rest[row]) {
        for (std::size_t j = Slicing::sparse_slices; j-- > 0;) {
          sum.add(entry.value * load<Double4>(scratch.slices[j].at(entry.term * stride + c)));
        }
      }
      for (std::size_t j = last + 1; j-- > 0;) {
        if (j < last) {
          sum.add(load<Double4>(scratch.products[j].at((cut.rows + r) * stride + c)));
        }
        sum.add(load<Double4>(scratch.products[j].at(r * stride + c)));
      }
      Double4 rounded, rest;
      sum.round(rounded, rest);
      store(scratch.results.at(c), rounded);
      store(scratch.rests.at(c), rest);
    }
    for (std::size_t c = 0; c < cut.columns; ++c) {
      DoubleDouble result{*scratch.results.at(c), *scratch.rests.at(c)};
      if (!(*scratch.magnitudes.at(r * stride + c) >= enough)) {
        result = sum_term_by_term(&weight.value[row * k], scratch.high.at(c), scratch.low.at(c), k,
                                  stride);
      }
      y[*scratch.destination.at(c) + row * pixels] = result;
    }
  }
}

void depthwise(const ProductGeometry& g, std::span<const DoubleDouble> x,
               std::span<const float> weight, unsigned threads, std::span<DoubleDouble> y) {
  const PhasePlanes phases(g);
  const std::size_t pixels = g.y.plane(), taps = g.terms(), in = g.x.plane();
  struct Worker {
    std::vector<double> high, low, high_planes, low_planes;
  };
  std::vector<Worker> workers(std::max(threads, 1u));
  for (Worker& worker : workers) {
    worker.high.resize(in);
    worker.low.resize(in);
    worker.high_planes.resize(phases.scratch_size(g, lanes));
    worker.low_planes.resize(phases.scratch_size(g, lanes));
  }
  parallel_for(threads, g.y.n * g.y.c, [&](std::size_t index, unsigned number) {
    Worker& worker = workers[number];
    for (std::size_t i = 0; i < in; ++i) {
      worker.high[i] = x[index * in + i].high;
      worker.low[i] = x[index * in + i].low;
    }
    phases.copy(g, worker.high.data(), worker.high_planes.data());
    phases.copy(g, worker.low.data(), worker.low_planes.data());
    const float* w = &weight[index % g.y.c * taps];
    for (std::size_t oy = 0; oy < g.y.h; ++oy) {
      for (std::size_t ox = 0; ox < g.y.w; ox += 4) {
        TripleSum<Double4> sum;
        for (std::size_t tap = 0; tap < taps; ++tap) {
          const std::size_t from = phases.offset[tap] + oy * phases.width + ox;
          add_term(sum, Double4{} + w[tap], load<Double4>(&worker.high_planes[from]),
                   load<Double4>(&worker.low_planes[from]));
        }
        Double4 rounded, rest;
        sum.round(rounded, rest);
        for (std::size_t i = 0; i < std::min<std::size_t>(4, g.y.w - ox); ++i) {
          y[index * pixels + oy * g.y.w + ox + i] = {rounded[i], rest[i]};
        }
      }
    }
  });
}

}  // namespace

void double_double_product(const ProductGeometry& geometry, std::span<const DoubleDouble> x,
                           std::span<const float> weight, unsigned threads,
                           std::span<DoubleDouble> y) {
  check_product(geometry, weight.size());
  const std::vector<std::span<const DoubleDouble>> examples = examples_of(geometry, x);
  if (y.size() != geometry.y.size()) {
    throw std::logic_error("product: the result's length is not its shape's");
  }
  if (geometry.kind == ProductKind::depthwise) {
    depthwise(geometry, x, weight, threads, y);
    return;
  }
  fix_eigen_blocking();
  const std::size_t k = geometry.terms();
  const std::vector<ProductCut> cuts = cut_product(geometry);
  const Slicing slicing(k);
  const SlicedWeight sliced = slice_weight(geometry, weight, slicing, cuts.front().rows, threads);
  std::vector<SliceScratch> workers;
  for (unsigned worker = 0; worker < std::clamp<std::size_t>(threads, 1, cuts.size()); ++worker) {
    workers.emplace_back(k, cuts.front().rows, round_up(cuts.front().columns, lanes));
  }
  parallel_for(threads, cuts.size(), [&](std::size_t index, unsigned worker) {
    matrix_tile(geometry, examples, sliced, slicing, cuts[index], workers[worker], y);
  });
}

}  // namespace shardproof
