#include "reference/nets/mobilenetv4_conv_m.h"

#include <array>
#include <cmath>
#include <string>

namespace shardproof {
namespace {

// A universal inverted bottleneck, spec §5: kernel 0 means that the depthwise is absent.
struct Row {
  std::size_t in, out, expand, pre_kernel, post_kernel, stride;
};
constexpr std::array<Row, 21> kRows{{
    {48, 80, 4, 3, 5, 2},   {80, 80, 2, 3, 3, 1},   {80, 160, 6, 3, 5, 2},  {160, 160, 4, 3, 3, 1},
    {160, 160, 4, 3, 3, 1}, {160, 160, 4, 3, 5, 1}, {160, 160, 4, 3, 3, 1}, {160, 160, 4, 3, 0, 1},
    {160, 160, 2, 0, 0, 1}, {160, 160, 4, 3, 0, 1}, {160, 256, 6, 5, 5, 2}, {256, 256, 4, 5, 5, 1},
    {256, 256, 4, 3, 5, 1}, {256, 256, 4, 3, 5, 1}, {256, 256, 4, 0, 0, 1}, {256, 256, 4, 3, 0, 1},
    {256, 256, 2, 3, 5, 1}, {256, 256, 4, 5, 5, 1}, {256, 256, 4, 0, 0, 1}, {256, 256, 4, 0, 0, 1},
    {256, 256, 2, 5, 0, 1},
}};

class Builder {
 public:
  Builder(const NetOptions& options, BatchNorm batch_norm)
      : options_(options), batch_norm_(batch_norm) {}

  Graph build() {
    NodeId x = graph_.input("x", {1, 3, options_.size, options_.size});
    x = convolution_site(x, "s", 32, 3, 2, true);
    x = convolution_site(x, "f0c", 128, 3, 2, true);
    x = convolution_site(x, "f0p", 48, 1, 1, false);
    for (std::size_t i = 0; i < kRows.size(); ++i) {
      x = bottleneck(x, "u" + std::to_string(i + 1), kRows[i]);
    }
    x = convolution_site(x, "h1", 960, 1, 1, true);
    x = graph_.global_average_pool(x, "gap");
    x = convolution_site(x, "h", 1280, 1, 1, true);
    graph_.dense(x, {"Wd", "bd"}, options_.classes);
    return std::move(graph_);
  }

 private:
  NodeId batch_norm(NodeId x, const std::string& tag, bool relu) {
    const std::string gamma = tag + "g";
    const std::string beta = tag + "bt";
    x = batch_norm_ == BatchNorm::synchronised
            ? graph_.bn_sync_site(x, {gamma, beta, options_.epsilon})
            : graph_.bn_batch_site(x, {gamma, beta, options_.epsilon});
    return relu ? graph_.relu(x, gamma + ".relu") : x;
  }

  NodeId convolution_site(NodeId x, const std::string& tag, std::size_t out, std::size_t kernel,
                          std::size_t stride, bool relu) {
    const std::size_t padding = (kernel - 1) / 2;
    const Convolution convolution{tag + "W", "", kernel, stride, padding, padding};
    return batch_norm(graph_.convolution(x, convolution, out / options_.width_divisor), tag, relu);
  }

  NodeId depthwise_site(NodeId x, const std::string& tag, std::size_t kernel, std::size_t stride,
                        bool relu) {
    const std::size_t padding = (kernel - 1) / 2;
    return batch_norm(graph_.depthwise(x, {tag + "W", kernel, stride, padding, padding}), tag,
                      relu);
  }

  NodeId bottleneck(NodeId x, const std::string& tag, const Row& row) {
    NodeId y = x;
    if (row.pre_kernel != 0) y = depthwise_site(y, tag + "q", row.pre_kernel, 1, false);
    y = convolution_site(y, tag + "e", row.in * row.expand, 1, 1, true);
    if (row.post_kernel != 0) y = depthwise_site(y, tag + "d", row.post_kernel, row.stride, true);
    y = convolution_site(y, tag + "p", row.out, 1, 1, false);
    return row.stride == 1 ? graph_.add(y, x, tag + ".add") : y;
  }

  NetOptions options_;
  BatchNorm batch_norm_;
  Graph graph_;
};

}  // namespace

Result<Graph> mobilenetv4_conv_m(const NetOptions& options, BatchNorm batch_norm) {
  if (options.size == 0 || options.size % 32 != 0 || options.size > 4096) {
    return Error{"size " + std::to_string(options.size) +
                 ": mobilenetv4-conv-m takes a multiple of 32, from 32 to 4096"};
  }
  if (options.classes == 0 || options.classes > 1'000'000) {
    return Error{"classes " + std::to_string(options.classes) + ": give 1 to 1000000"};
  }
  const std::size_t divisor = options.width_divisor;
  if (divisor == 0 || divisor > 16 || 16 % divisor != 0) {
    return Error{"width divisor " + std::to_string(divisor) + ": give 1, 2, 4, 8 or 16"};
  }
  if (!(options.epsilon > 0) || !std::isfinite(options.epsilon)) {
    return Error{"epsilon must be a positive float32 number"};
  }
  return Builder(options, batch_norm).build();
}

}  // namespace shardproof
