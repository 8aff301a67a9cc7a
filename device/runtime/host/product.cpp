#include "device/runtime/host/product.h"

#include <Eigen/Core>
#include <algorithm>
#include <mutex>

namespace shardproof::host {
namespace {

constexpr std::size_t tile_rows = 128;
constexpr std::size_t tile_columns = 512;

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;

Eigen::Index index(std::size_t value) { return static_cast<Eigen::Index>(value); }

// Eigen splits the depth by the cache sizes it detects, and so the order of the sums.
void fix_blocking() {
  static std::once_flag once;
  std::call_once(once, [] { Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 8 << 20); });
}

}  // namespace

void multiply(WorkerPool& pool, std::size_t rows, std::size_t columns, std::size_t depth,
              const float* a, const float* b, float* c) {
  fix_blocking();
  const std::size_t row_tiles = (rows + tile_rows - 1) / tile_rows;
  const std::size_t column_tiles = (columns + tile_columns - 1) / tile_columns;
  pool.run(row_tiles * column_tiles, [&](int, std::uint64_t tile) {
    const std::size_t row = tile / column_tiles * tile_rows;
    const std::size_t column = tile % column_tiles * tile_columns;
    const Eigen::Index height = index(std::min(tile_rows, rows - row));
    const Eigen::Index width = index(std::min(tile_columns, columns - column));
    const Eigen::Map<const Matrix> left(a + row * depth, height, index(depth));
    const Eigen::Map<const Matrix, 0, Stride> right(b + column, index(depth), width,
                                                    Stride(index(columns)));
    Eigen::Map<Matrix, 0, Stride> out(c + row * columns + column, height, width,
                                      Stride(index(columns)));
    out.noalias() = left * right;
  });
}

}  // namespace shardproof::host
