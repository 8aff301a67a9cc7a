// Speed of the product nodes of MobileNetV4-Conv-M (spec §5) on a batch, as ratios within one run.
//   bench_products [images = 8] [threads = 2] [input size = 224] [repetitions = 5]
// Eigen's own rate is that of one large float64 product on as many threads, each with its own.
#include <Eigen/Core>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "reference/graph/double_double_products.h"
#include "reference/graph/parallel.h"
#include "reference/graph/product_tiles.h"
#include "reference/graph/products.h"

using namespace shardproof;

namespace {

struct Bottleneck {
  std::size_t in, out, expand, pre_kernel, post_kernel, stride;
};
constexpr Bottleneck bottlenecks[] = {
    {48, 80, 4, 3, 5, 2},   {80, 80, 2, 3, 3, 1},   {80, 160, 6, 3, 5, 2},  {160, 160, 4, 3, 3, 1},
    {160, 160, 4, 3, 3, 1}, {160, 160, 4, 3, 5, 1}, {160, 160, 4, 3, 3, 1}, {160, 160, 4, 3, 0, 1},
    {160, 160, 2, 0, 0, 1}, {160, 160, 4, 3, 0, 1}, {160, 256, 6, 5, 5, 2}, {256, 256, 4, 5, 5, 1},
    {256, 256, 4, 3, 5, 1}, {256, 256, 4, 3, 5, 1}, {256, 256, 4, 0, 0, 1}, {256, 256, 4, 3, 0, 1},
    {256, 256, 2, 3, 5, 1}, {256, 256, 4, 5, 5, 1}, {256, 256, 4, 0, 0, 1}, {256, 256, 4, 0, 0, 1},
    {256, 256, 2, 5, 0, 1}};

std::vector<ProductGeometry> network(std::size_t images, std::size_t size) {
  std::vector<ProductGeometry> nodes;
  std::size_t channels = 3;
  const auto add = [&](ProductKind kind, std::size_t out, std::size_t kernel, std::size_t stride) {
    const Shape x{images, channels, size, size};
    channels = out;
    size /= stride;
    nodes.push_back({kind, x, {images, channels, size, size}, kernel, stride, (kernel - 1) / 2});
  };
  add(ProductKind::convolution, 32, 3, 2);
  add(ProductKind::convolution, 128, 3, 2);
  add(ProductKind::convolution, 48, 1, 1);
  for (const Bottleneck& row : bottlenecks) {
    if (row.pre_kernel > 0) add(ProductKind::depthwise, row.in, row.pre_kernel, 1);
    add(ProductKind::convolution, row.in * row.expand, 1, 1);
    if (row.post_kernel > 0) add(ProductKind::depthwise, channels, row.post_kernel, row.stride);
    add(ProductKind::convolution, row.out, 1, 1);
  }
  add(ProductKind::convolution, 960, 1, 1);
  size = 1;
  add(ProductKind::convolution, 1280, 1, 1);
  add(ProductKind::dense, 1000, 1, 1);
  return nodes;
}

template <class Function>
double seconds(Function&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Multiply-adds a second of Eigen's float64 product, all threads together.
double eigen_rate(unsigned threads) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  constexpr Eigen::Index n = 512;
  constexpr std::size_t each = 4;
  const Matrix a = Matrix::Random(n, n), b = Matrix::Random(n, n);
  std::vector<Matrix> results(threads, Matrix(n, n));
  const double time = seconds([&] {
    parallel_for(threads, threads, [&](std::size_t index) {
      for (std::size_t i = 0; i < each; ++i) results[index].noalias() = a * b;
    });
  });
  return static_cast<double>(n * n * n) * each * threads / time;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::max(1, std::atoi(argv[i])) : otherwise;
  };
  const auto images = static_cast<std::size_t>(argument(1, 8));
  const auto threads = static_cast<unsigned>(argument(2, 2));
  const std::vector<ProductGeometry> nodes =
      network(images, static_cast<std::size_t>(argument(3, 224)));
  const int repetitions = argument(4, 5);

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> x, weight;
  for (const ProductGeometry& node : nodes) {
    x.emplace_back(node.x.size());
    weight.emplace_back(node.weight_size());
    for (float& number : x.back()) number = std::max(normal(random), 0.0f);
    for (float& number : weight.back()) number = normal(random);
  }

  struct Group {
    const char* name;
    bool (*holds)(const ProductGeometry&);
    double multiply_adds = 0;
    double best[3] = {1e9, 1e9, 1e9};
  };
  Group groups[] = {
      {"k x k convolutions",
       [](const auto& g) { return g.kind == ProductKind::convolution && g.kernel > 1; }},
      {"1 x 1 and dense",
       [](const auto& g) { return g.kind != ProductKind::depthwise && g.kernel == 1; }},
      {"depthwise", [](const auto& g) { return g.kind == ProductKind::depthwise; }},
  };
  fix_eigen_blocking();
  double rate = 0, total[3] = {1e9, 1e9, 1e9}, sums = 0;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    rate = std::max(rate, eigen_rate(threads));
    for (int needs = 0; needs < 3; ++needs) {
      double all = 0;
      for (Group& group : groups) {
        double time = 0;
        group.multiply_adds = 0;
        for (std::size_t i = 0; i < nodes.size(); ++i) {
          if (!group.holds(nodes[i])) continue;
          group.multiply_adds += static_cast<double>(nodes[i].multiply_adds());
          time += seconds([&] {
            for_each_product_tile(nodes[i], x[i], weight[i], static_cast<ProductNeeds>(needs),
                                  threads, [](const ProductTile&) {});
          });
        }
        group.best[needs] = std::min(group.best[needs], time);
        all += time;
      }
      total[needs] = std::min(total[needs], all);
    }
  }
  for (const Group& group : groups) sums += group.multiply_adds;
  std::printf("Eigen float64: %.2f G multiply-adds/s on %u threads\n", rate * 1e-9, threads);
  std::printf("%-20s %8s %26s %26s\n", "", "", "seconds", "share of Eigen's rate");
  std::printf("%-20s %8s %8s %8s %8s %8s %8s %8s\n", "", "G m-a", "alone", "+ |t|", "+ t^2",
              "alone", "+ |t|", "+ t^2");
  const auto line = [&](const char* name, double multiply_adds, const double* time) {
    std::printf("%-20s %8.3f %7.3fs %7.3fs %7.3fs", name, multiply_adds * 1e-9, time[0], time[1],
                time[2]);
    for (int needs = 0; needs < 3; ++needs) {
      std::printf(" %7.1f%%", 100 * multiply_adds / time[needs] / rate);
    }
    std::printf("\n");
  };
  for (const Group& group : groups) line(group.name, group.multiply_adds, group.best);
  line("together", sums, total);

  std::printf("\nDouble-double products\n");
  double all = 0;
  for (const Group& group : groups) {
    double time = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!group.holds(nodes[i])) continue;
      std::vector<DoubleDouble> operand, result(nodes[i].y.size());
      for (const float number : x[i]) {
        const double high = static_cast<double>(number) / 3;
        operand.emplace_back(high, high * 0x1p-55);
      }
      time +=
          seconds([&] { double_double_product(nodes[i], operand, weight[i], threads, result); });
    }
    all += time;
    std::printf(
        "%-20s %7.3fs, %.3f ns a multiply-add on each thread, %.2f times one at Eigen's rate\n",
        group.name, time, time * threads / group.multiply_adds * 1e9,
        time / group.multiply_adds * rate);
  }
  std::printf("%-20s %7.3fs\n", "together", all);
}
