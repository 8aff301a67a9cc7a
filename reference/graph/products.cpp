#include "reference/graph/products.h"

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>

#include "reference/graph/parallel.h"
#include "reference/graph/product_tiles.h"
#include "reference/graph/vectors.h"

namespace shardproof {
namespace {

// quantum ← min(quantum, exponent of the lowest set bit) and terms ← terms + 1, for eight numbers
// at once; zeros change neither. Infinities and NaN get the exponent their bits spell.
[[gnu::always_inline]] inline void join_lines(const float* x, Int8& quantum, Int8& terms) {
  const Int8 bits = load<Int8>(x) & 0x7fffffff;
  const Int8 field = bits >> 23;
  const Int8 subnormal = field == 0;
  const Int8 significand = (bits & 0x7fffff) | (~subnormal & 0x800000);
  const Int8 lowest = significand & -significand;
  const Int8 log2_lowest =
      (std::bit_cast<Int8>(__builtin_convertvector(lowest, Float8)) >> 23) - 127;
  const Int8 exponent = field - subnormal - 150 + log2_lowest;
  const Int8 is_zero = bits == 0;
  terms += is_zero + 1;
  quantum = (is_zero | (quantum < exponent)) ? quantum : exponent;
}

struct Line {
  int quantum = any_quantum;
  int terms = 0;
};

Line line_of(std::span<const float> numbers) {
  Int8 quantum = Int8{} + any_quantum, terms = {};
  std::size_t i = 0;
  for (; i + lanes <= numbers.size(); i += lanes) join_lines(&numbers[i], quantum, terms);
  if (i < numbers.size()) {
    float rest[lanes] = {};
    std::copy(numbers.begin() + static_cast<std::ptrdiff_t>(i), numbers.end(), rest);
    join_lines(rest, quantum, terms);
  }
  Line line;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    line.quantum = std::min(line.quantum, quantum[lane]);
    line.terms += terms[lane];
  }
  return line;
}

// x², or 2^-126 where that is larger and x is not zero: never below x² · (1 − 2^-24), so that
// products of squares lose nothing to underflow but what raise() adds back.
void square(const float* x, float* squares) {
  const Float8 v = load<Float8>(x);
  const Float8 squared = v * v;
  const Float8 least = Float8{} + std::numeric_limits<float>::min();
  const Float8 raised = squared < least ? least : squared;
  store(squares, v == 0 ? v * v : raised);
}

void magnitude(const float* x, float* magnitudes) { store(magnitudes, load<Int8>(x) & 0x7fffffff); }

// Turns float32 sums of non-negative products into upper bounds. A sum of K terms is at least
// (1 − roundings·2^-24) times the exact one, less 2^-150 a term where products underflow; two more
// roundings are this function's own. `roundings` counts those on the path of one term.
class Raise {
 public:
  Raise(std::size_t terms, std::size_t roundings)
      : factor_(std::nextafter(
            static_cast<float>(1 / (1 - static_cast<double>(roundings + 3) * 0x1.03p-24)),
            std::numeric_limits<float>::infinity())),
        underflow_(std::ldexp(static_cast<float>(terms + 2), -149)) {}

  void operator()(float* sums, std::size_t n) const {
    const Float8 infinity = Float8{} + std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < n; i += lanes) {
      const Float8 raised = load<Float8>(sums + i) * factor_ + underflow_;
      store(sums + i, raised == raised ? raised : infinity);
    }
  }

 private:
  float factor_;
  float underflow_;
};

bool has(ProductNeeds needs, ProductNeeds what) { return needs >= what; }

// The weight as W [rows × terms], and what the needs ask of it.
struct PreparedWeight {
  std::size_t rows, terms;
  Scratch<double> value;
  Scratch<float> magnitudes, squares;
  std::vector<int> quantum, line_terms;

  PreparedWeight(const ProductGeometry& g, std::span<const float> weight, ProductNeeds needs,
                 unsigned threads)
      : rows(g.y.c),
        terms(g.terms()),
        value(rows * terms),
        magnitudes(has(needs, ProductNeeds::magnitude) ? rows * terms : 0),
        squares(has(needs, ProductNeeds::squares) ? rows * terms : 0),
        quantum(rows, any_quantum),
        line_terms(rows, 0) {
    constexpr std::size_t block = 32;  // rows; a transposed read takes whole cache lines
    const std::size_t padded = round_up(terms, lanes);
    parallel_for(threads, (rows + block - 1) / block, [&](std::size_t index) {
      const std::size_t first = index * block, count = std::min(block, rows - first);
      std::vector<float> lines(count * padded), squared(padded);
      if (g.kind == ProductKind::dense) {
        for (std::size_t k = 0; k < terms; ++k) {
          for (std::size_t r = 0; r < count; ++r)
            lines[r * padded + k] = weight[k * rows + first + r];
        }
      } else {
        for (std::size_t r = 0; r < count; ++r) {
          std::copy_n(&weight[(first + r) * terms], terms, &lines[r * padded]);
        }
      }
      for (std::size_t r = 0; r < count; ++r) {
        float* line = &lines[r * padded];
        std::copy_n(line, terms, value.at((first + r) * terms));
        if (!has(needs, ProductNeeds::magnitude)) continue;
        const Line found = line_of({line, terms});
        quantum[first + r] = found.quantum;
        line_terms[first + r] = found.terms;
        for (std::size_t k = 0; k < padded; k += lanes) magnitude(line + k, line + k);
        std::copy_n(line, terms, magnitudes.at((first + r) * terms));
        if (!has(needs, ProductNeeds::squares)) continue;
        for (std::size_t k = 0; k < padded; k += lanes) square(line + k, &squared[k]);
        std::copy_n(squared.data(), terms, squares.at((first + r) * terms));
      }
    });
  }
};

// Scratch of one worker for tiles of at most so many rows and columns.
template <class T>
struct MatrixScratch {
  Scratch<double> x, y;
  Scratch<T> term;
  Scratch<float> x_magnitudes, x_squares, magnitudes, squares;
  Scratch<int> quantum, terms;

  MatrixScratch(std::size_t k, std::size_t rows, std::size_t stride, ProductNeeds needs)
      : x(k * stride),
        y(rows * stride),
        term(stride),
        x_magnitudes(has(needs, ProductNeeds::magnitude) ? k * stride : 0),
        x_squares(has(needs, ProductNeeds::squares) ? k * stride : 0),
        magnitudes(has(needs, ProductNeeds::magnitude) ? rows * stride : 0),
        squares(has(needs, ProductNeeds::squares) ? rows * stride : 0),
        quantum(stride),
        terms(stride) {}
};

// One tile of a convolution or dense product.
template <class T>
void matrix_tile(const ProductGeometry& g, std::span<const std::span<const T>> x,
                 const PreparedWeight& weight, ProductNeeds needs, const ProductCut& cut,
                 unsigned worker, MatrixScratch<T>& scratch, const ProductSink& sink) {
  const std::size_t k = weight.terms, stride = round_up(cut.columns, lanes);
  const bool magnitudes = has(needs, ProductNeeds::magnitude);
  const bool squares = has(needs, ProductNeeds::squares);
  std::fill_n(scratch.quantum.at(0), stride, any_quantum);
  std::fill_n(scratch.terms.at(0), stride, 0);
  for (std::size_t term = 0; term < k; ++term) {
    if constexpr (std::is_same_v<T, double>) {
      gather_term(g, x, term, cut.first_column, cut.columns, scratch.x.at(term * stride));
    } else {
      float* row = scratch.term.at(0);
      gather_term(g, x, term, cut.first_column, cut.columns, row);
      std::fill(row + cut.columns, row + stride, 0.0f);
      for (std::size_t i = 0; i < stride; i += lanes) {
        widen4(row + i, scratch.x.at(term * stride + i));
        widen4(row + i + 4, scratch.x.at(term * stride + i + 4));
        if (!magnitudes) continue;
        Int8 quantum = load<Int8>(scratch.quantum.at(i)), terms = load<Int8>(scratch.terms.at(i));
        join_lines(row + i, quantum, terms);
        store(scratch.quantum.at(i), quantum);
        store(scratch.terms.at(i), terms);
        magnitude(row + i, scratch.x_magnitudes.at(term * stride + i));
        if (squares) square(row + i, scratch.x_squares.at(term * stride + i));
      }
    }
  }
  const std::size_t from = cut.first_row * k;
  multiply(weight.value.at(from), scratch.x.at(0), scratch.y.at(0), cut.rows, k, cut.columns,
           stride);
  // K roundings, and one for the panels that Eigen cuts long sums into; a square rounds twice more.
  if (magnitudes) {
    multiply(weight.magnitudes.at(from), scratch.x_magnitudes.at(0), scratch.magnitudes.at(0),
             cut.rows, k, cut.columns, stride);
    Raise(k, k + 1)(scratch.magnitudes.at(0), cut.rows * stride);
  }
  if (squares) {
    multiply(weight.squares.at(from), scratch.x_squares.at(0), scratch.squares.at(0), cut.rows, k,
             cut.columns, stride);
    Raise(k, k + 3)(scratch.squares.at(0), cut.rows * stride);
  }
  const std::size_t pixels = g.y.plane();
  for (std::size_t done = 0; done < cut.columns;) {
    const std::size_t column = cut.first_column + done;
    ProductTile tile;
    tile.worker = worker;
    tile.image = column / pixels;
    tile.first_channel = cut.first_row;
    tile.channels = cut.rows;
    tile.first_pixel = column % pixels;
    tile.pixels = std::min(cut.columns - done, pixels - tile.first_pixel);
    tile.row_stride = stride;
    tile.value = scratch.y.at(done);
    if (magnitudes) {
      tile.magnitude = scratch.magnitudes.at(done);
      tile.row_quantum = std::span(weight.quantum).subspan(cut.first_row, cut.rows);
      tile.row_terms = std::span(weight.line_terms).subspan(cut.first_row, cut.rows);
      tile.column_quantum = scratch.quantum.from(done, tile.pixels);
      tile.column_terms = scratch.terms.from(done, tile.pixels);
    }
    if (squares) tile.squares = scratch.squares.at(done);
    sink(tile);
    done += tile.pixels;
  }
}

constexpr std::size_t depthwise_block = 16;  // outputs whose sums are kept in registers

struct DepthwiseSums {
  double* value;
  float *magnitude, *squares;
};

// Sums of n (a multiple of depthwise_block) consecutive outputs of one plane.
template <ProductNeeds needs>
void depthwise_plane(const double* planes, std::span<const std::size_t> offset,
                     const double* weight, std::size_t n, const DepthwiseSums& sums) {
  constexpr std::size_t vectors = depthwise_block / 4;
  constexpr bool magnitudes = needs >= ProductNeeds::magnitude;
  constexpr bool squares = needs >= ProductNeeds::squares;
  // Float64 sums of at most 2^22 terms, then two roundings to float32: 2^-22 covers them all.
  const auto bound = [](const Double4& sum, float* to) {
    const Float4 raised = __builtin_convertvector(sum * (1 + 0x1p-22), Float4) + 0x1p-149f;
    const Float4 infinity = Float4{} + std::numeric_limits<float>::infinity();
    store(to, raised == raised ? raised : infinity);
  };
  for (std::size_t i = 0; i < n; i += depthwise_block) {
    Double4 value[vectors] = {}, magnitude[vectors] = {}, square[vectors] = {};
    for (std::size_t tap = 0; tap < offset.size(); ++tap) {
      const double* from = planes + i + offset[tap];
      const double w = weight[tap];
#pragma GCC unroll 4
      for (std::size_t v = 0; v < vectors; ++v) {
        const Double4 t = w * load<Double4>(from + 4 * v);
        value[v] += t;
        if constexpr (magnitudes) {
          magnitude[v] += absolute(t);
        }
        if constexpr (squares) square[v] += t * t;
      }
    }
#pragma GCC unroll 4
    for (std::size_t v = 0; v < vectors; ++v) {
      store(sums.value + i + 4 * v, value[v]);
      if constexpr (magnitudes) bound(magnitude[v], sums.magnitude + i + 4 * v);
      if constexpr (squares) bound(square[v], sums.squares + i + 4 * v);
    }
  }
}

template <class T>
void depthwise(const ProductGeometry& g, std::span<const std::span<const T>> x,
               std::span<const float> weight, ProductNeeds needs, unsigned threads,
               const ProductSink& sink) {
  const std::size_t taps = g.terms(), pixels = g.y.plane();
  const PhasePlanes phases(g);
  const std::size_t computed = round_up(g.y.h * phases.width, depthwise_block);
  // Whole planes to a tile, about as many outputs as fit the caches with all their arrays.
  const std::size_t group =
      std::clamp<std::size_t>(4096 / std::max<std::size_t>(pixels, 1), 1, g.y.c);
  const std::size_t groups = (g.y.c + group - 1) / group;
  const std::vector<int> any_columns(pixels, 0), all_terms(pixels, std::numeric_limits<int>::max());

  struct Worker {
    std::vector<double> planes, weight;
    Scratch<double> sums, value;
    Scratch<float> magnitude_sums, magnitude, square_sums, squares;
    std::vector<int> quantum, terms;
  };
  std::vector<Worker> workers(std::max(threads, 1u));
  for (Worker& worker : workers) {
    worker.planes.resize(phases.scratch_size(g, depthwise_block));
    worker.weight.resize(taps);
    worker.sums = Scratch<double>(computed);
    worker.value = Scratch<double>(group * pixels);
    worker.magnitude_sums = worker.square_sums = Scratch<float>(computed);
    worker.magnitude = worker.squares = Scratch<float>(group * pixels);
    worker.quantum.resize(group);
    worker.terms.resize(group);
  }
  parallel_for(threads, g.y.n * groups, [&](std::size_t index, unsigned number) {
    Worker& worker = workers[number];
    ProductTile tile;
    tile.worker = number;
    tile.image = index / groups;
    tile.first_channel = index % groups * group;
    tile.channels = std::min(group, g.y.c - tile.first_channel);
    tile.pixels = tile.row_stride = pixels;
    for (std::size_t i = 0; i < tile.channels; ++i) {
      const std::size_t channel = tile.first_channel + i;
      const auto plane = x[tile.image].subspan(channel * g.x.plane(), g.x.plane());
      phases.copy(g, plane.data(), worker.planes.data());
      std::copy_n(&weight[channel * taps], taps, worker.weight.begin());
      const DepthwiseSums sums{worker.sums.at(0), worker.magnitude_sums.at(0),
                               worker.square_sums.at(0)};
      switch (needs) {
        case ProductNeeds::value:
          depthwise_plane<ProductNeeds::value>(worker.planes.data(), phases.offset,
                                               worker.weight.data(), computed, sums);
          break;
        case ProductNeeds::magnitude:
          depthwise_plane<ProductNeeds::magnitude>(worker.planes.data(), phases.offset,
                                                   worker.weight.data(), computed, sums);
          break;
        case ProductNeeds::squares:
          depthwise_plane<ProductNeeds::squares>(worker.planes.data(), phases.offset,
                                                 worker.weight.data(), computed, sums);
          break;
      }
      for (std::size_t row = 0; row < g.y.h; ++row) {
        const std::size_t from = row * phases.width, to = i * pixels + row * g.y.w;
        copy_line(sums.value + from, g.y.w, worker.value.at(to));
        if (has(needs, ProductNeeds::magnitude)) {
          copy_line(sums.magnitude + from, g.y.w, worker.magnitude.at(to));
        }
        if (has(needs, ProductNeeds::squares)) {
          copy_line(sums.squares + from, g.y.w, worker.squares.at(to));
        }
      }
      if constexpr (std::is_same_v<T, float>) {
        if (has(needs, ProductNeeds::magnitude)) {
          const Line own = line_of(weight.subspan(channel * taps, taps)), read = line_of(plane);
          worker.quantum[i] = own.quantum + read.quantum;
          worker.terms[i] = std::min(own.terms, read.terms);
        }
      }
    }
    tile.value = worker.value.at(0);
    if (has(needs, ProductNeeds::magnitude)) {
      tile.magnitude = worker.magnitude.at(0);
      tile.row_quantum = std::span(worker.quantum).first(tile.channels);
      tile.row_terms = std::span(worker.terms).first(tile.channels);
      tile.column_quantum = any_columns;
      tile.column_terms = all_terms;
    }
    if (has(needs, ProductNeeds::squares)) tile.squares = worker.squares.at(0);
    sink(tile);
  });
}

template <class T>
void evaluate(const ProductGeometry& g, std::span<const std::span<const T>> x,
              std::span<const float> weight, ProductNeeds needs, unsigned threads,
              const ProductSink& sink) {
  check_product(g, weight.size());
  if (x.size() != g.x.n || std::any_of(x.begin(), x.end(), [&](std::span<const T> example) {
        return example.size() != g.x.example();
      })) {
    throw std::logic_error("product: the operand's examples are not its shape's");
  }
  if (g.kind == ProductKind::depthwise) {
    depthwise(g, x, weight, needs, threads, sink);
    return;
  }
  fix_eigen_blocking();
  const std::vector<ProductCut> cuts = cut_product(g);
  std::size_t rows = 0, columns = 0;
  for (const ProductCut& cut : cuts) {
    rows = std::max(rows, cut.rows);
    columns = std::max(columns, cut.columns);
  }
  const PreparedWeight prepared(g, weight, needs, threads);
  std::vector<MatrixScratch<T>> workers;
  for (unsigned worker = 0; worker < std::clamp<std::size_t>(threads, 1, cuts.size()); ++worker) {
    workers.emplace_back(prepared.terms, rows, round_up(columns, lanes), needs);
  }
  parallel_for(threads, cuts.size(), [&](std::size_t index, unsigned worker) {
    matrix_tile(g, x, prepared, needs, cuts[index], worker, workers[worker], sink);
  });
}

}  // namespace

std::size_t ProductGeometry::terms() const {
  switch (kind) {
    case ProductKind::convolution:
      return x.c * kernel * kernel;
    case ProductKind::depthwise:
      return kernel * kernel;
    case ProductKind::dense:
      return x.example();
  }
  throw std::logic_error("unknown kind of product");
}

std::size_t ProductGeometry::weight_size() const { return y.c * terms(); }

std::size_t ProductGeometry::multiply_adds() const { return y.size() * terms(); }

bool ProductTile::sum_is_exact(std::size_t c, std::size_t p, int significand_bits) const {
  const std::size_t at = c * row_stride + p;
  if (!(magnitude[at] < std::numeric_limits<float>::infinity())) return false;
  if (std::min(row_terms[c], column_terms[p]) <= 1) {
    // A single term: it rounds only where the product itself does.
    int exponent = 0;
    const double scaled = std::ldexp(std::frexp(value[at], &exponent), significand_bits);
    return scaled == std::trunc(scaled) &&
           (value[at] == 0 || row_quantum[c] + column_quantum[p] >= -149);
  }
  const int quantum = row_quantum[c] + column_quantum[p];
  return quantum >= -149 && magnitude[at] <= std::ldexp(1.0, significand_bits + quantum);
}

void check_product(const ProductGeometry& g, std::size_t weight_size) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(std::string("product: ") + what);
  };
  require(weight_size == g.weight_size(), "the weight's length is not its shape's");
  require(g.x.n == g.y.n, "operand and result differ in the number of examples");
  require(g.kernel > 0 && g.stride > 0, "kernel and stride are at least 1");
  require(g.y.size() > 0 && g.terms() > 0, "nothing to compute");
  require(g.terms() < std::size_t{1} << 22, "sums of 2^22 terms or more have no derived bound");
  require(g.kind != ProductKind::depthwise || g.x.c == g.y.c, "depthwise keeps the channels");
  require(g.kind != ProductKind::dense ||
              (g.kernel == 1 && g.stride == 1 && g.pad_begin == 0 && g.y.plane() == 1),
          "dense has neither kernel nor padding, and one number a channel");
}

// Measured with Eigen 3.4: between 192 and 768 columns, by the length of the sums, its rate is
// flat; the first columns of Y must not push the packed operands out of the second-level cache.
// Widths are multiples of 24, a whole number of its register blocks in both precisions.
std::vector<ProductCut> cut_product(const ProductGeometry& g) {
  const std::size_t rows = g.y.c, columns = g.y.n * g.y.plane();
  const std::size_t wished = std::clamp<std::size_t>(98304 / g.terms(), 192, 768);
  const std::size_t across = std::max<std::size_t>(1, (columns + wished / 2) / wished);
  const std::size_t width = round_up((columns + across - 1) / across, 24);
  // Where few tiles come of it, rows are cut too, so that several threads share the work evenly.
  std::size_t down = 1;
  while (across * down < 8 && rows / (2 * down) >= 128) down *= 2;
  const std::size_t height = round_up((rows + down - 1) / down, 4);
  std::vector<ProductCut> cuts;
  for (std::size_t column = 0; column < columns; column += width) {
    for (std::size_t row = 0; row < rows; row += height) {
      cuts.push_back(
          {row, std::min(height, rows - row), column, std::min(width, columns - column)});
    }
  }
  return cuts;
}

void fix_eigen_blocking() {
  static std::once_flag once;
  std::call_once(once, [] { Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 8 << 20); });
}

void for_each_product_tile(const ProductGeometry& geometry,
                           std::span<const std::span<const float>> x, std::span<const float> weight,
                           ProductNeeds needs, unsigned threads, const ProductSink& sink) {
  evaluate(geometry, x, weight, needs, threads, sink);
}

void for_each_product_tile(const ProductGeometry& geometry, std::span<const float> x,
                           std::span<const float> weight, ProductNeeds needs, unsigned threads,
                           const ProductSink& sink) {
  evaluate<float>(geometry, examples_of(geometry, x), weight, needs, threads, sink);
}

void for_each_product_tile(const ProductGeometry& geometry, std::span<const double> x,
                           std::span<const float> weight, unsigned threads,
                           const ProductSink& sink) {
  evaluate<double>(geometry, examples_of(geometry, x), weight, ProductNeeds::value, threads, sink);
}

double product_radius(std::size_t terms) {
  return static_cast<double>(terms + 1) * 0x1p-53 * (1 + 0x1p-20);
}

}  // namespace shardproof
