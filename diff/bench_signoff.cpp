// Measures what a sign-off at 224×224 is made of, 4 replicas of 2 images, as seconds and as ratios
// in one run: bench_signoff [threads]. Minimum of three rounds, of five for the judge.
#include <malloc.h>

#include <Eigen/Dense>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/engine.h"
#include "diff/judge.h"
#include "reference/graph/batch_shard.h"
#include "reference/graph/evaluate.h"
#include "reference/graph/parallel.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/nets/weights.h"
#include "reference/numbers/double_double.h"
#include "reference/numbers/random.h"

namespace {

using namespace shardproof;

constexpr std::size_t kReplicas = 4;
constexpr std::size_t kBatch = 2;

template <class Work>
double seconds(int rounds, Work work) {
  double best = 1e30;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// Multiply-adds a second of Eigen's float64 product, every thread on a product of its own.
double eigen_rate(unsigned threads) {
  constexpr Eigen::Index kSize = 512;
  using Matrix = Eigen::MatrixXd;
  const double time = seconds(3, [&] {
    parallel_for(threads, threads, [&](std::size_t) {
      const Matrix a = Matrix::Constant(kSize, kSize, 1.5);
      Matrix b = Matrix::Constant(kSize, kSize, 0.5);
      for (int i = 0; i < 4; ++i) b.noalias() = a * Matrix::Constant(kSize, kSize, 0.5);
    });
  });
  return threads * 4.0 * kSize * kSize * kSize / time;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned threads = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1]))
                                    : std::max(1U, std::thread::hardware_concurrency());
  const Graph sync = *mobilenetv4_conv_m({}, BatchNorm::synchronised);
  const Graph batch = *mobilenetv4_conv_m({}, BatchNorm::batch);
  const Weights weights = seeded_weights(sync.parameters(), 1);
  Random random(1);
  Tensor<float> images({kReplicas * kBatch, 3, 224, 224});
  for (float& value : images.values) value = static_cast<float>(random.triangular(2));
  Family<float> shards;
  for (std::size_t r = 0; r < kReplicas; ++r) shards.push_back(batch_shard(kReplicas, images, r));

  // As the program does: memory that was freed is used again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const auto device = make_host_device(kReplicas, 1, static_cast<int>(threads));
  Engine engine(*device, sync, weights);
  std::vector<std::pair<NodeId, Family<float>>> recording;
  const double forward = seconds(3, [&] { (void)engine.forward({shards}, {}); });
  (void)engine.forward({shards}, [&](NodeId node, Family<float> values) {
    recording.emplace_back(node, std::move(values));
  });
  // Judging takes the recording by value, so a round's copy is made outside the clock.
  double judged = 1e30;
  for (int round = 0; round < 5; ++round) {
    auto copy = recording;
    Judge judge(sync, weights, *device, InputKind::natural, threads, {shards});
    judged = std::min(judged, seconds(1, [&] {
                        for (auto& [node, values] : copy) {
                          (void)judge.wrote(node, std::move(values));
                          judge.drop_read();
                        }
                      }));
  }
  const double first = seconds(3, [&] { (void)evaluate<double>(batch, weights, images, threads); });
  const double second =
      seconds(1, [&] { (void)evaluate<DoubleDouble>(batch, weights, images, threads); });
  const double rate = eigen_rate(threads);
  std::printf("MobileNetV4-Conv-M, 8 images of 224x224, %u threads\n", threads);
  std::printf("Eigen float64 products                %8.1f Gmul-add/s\n", rate * 1e-9);
  std::printf("device forward, host executor         %8.3f s\n", forward);
  std::printf("certified reference and allowances    %8.3f s, %.3f of the device forward\n", judged,
              judged / forward);
  std::printf("float64 evaluation                    %8.3f s\n", first);
  std::printf("double-double evaluation              %8.3f s, %.1f of the float64 one\n", second,
              second / first);
  return 0;
}
