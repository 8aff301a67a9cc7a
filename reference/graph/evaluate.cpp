#include "reference/graph/evaluate.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference/graph/double_double_products.h"
#include "reference/graph/parallel.h"
#include "reference/graph/products.h"
#include "reference/numbers/double_double.h"

namespace shardproof {
namespace {

template <class T>
class Evaluation {
 public:
  Evaluation(const Graph& graph, const Weights& weights, unsigned threads)
      : graph_(graph), weights_(weights), threads_(threads) {
    require_weights(graph, weights);
  }

  Tensor<T> run(const Tensor<float>& input) {
    const std::vector<NodeId> last = graph_.last_readers();
    values_.assign(graph_.nodes().size(), {});
    for (NodeId id = 0; id < graph_.nodes().size(); ++id) {
      const Node& node = graph_.node(id);
      Shape shape = node.shape;
      shape.n = input.shape.n;
      Tensor<T> y(shape);
      if (std::holds_alternative<Input>(node.operation)) {
        if (input.shape != shape) throw std::invalid_argument("evaluate: input of another shape");
        std::transform(input.values.begin(), input.values.end(), y.values.begin(),
                       [](float v) { return T(static_cast<double>(v)); });
      } else {
        std::visit([&](const auto& operation) { compute(node, operation, y); }, node.operation);
      }
      values_[id] = std::move(y);
      for (const NodeId operand : node.operands) {
        if (last[operand] == id) values_[operand] = {};
      }
    }
    return std::move(values_[graph_.output()]);
  }

 private:
  const Tensor<T>& operand(const Node& node, std::size_t index = 0) const {
    return values_[node.operands.at(index)];
  }
  std::span<const float> weight(const std::string& name) const { return weights_.at(name).values; }
  static T number(float value) { return T(static_cast<double>(value)); }

  void product(const ProductGeometry& geometry, const Tensor<T>& x, std::span<const float> w,
               Tensor<T>& y) const {
    if constexpr (std::is_same_v<T, double>) {
      for_each_product_tile(
          geometry, std::span<const double>(x.values), w, threads_, [&](const ProductTile& tile) {
            for (std::size_t c = 0; c < tile.channels; ++c) {
              const std::size_t row = tile.image * geometry.y.c + tile.first_channel + c;
              std::copy_n(tile.value + c * tile.row_stride, tile.pixels,
                          y.values.begin() + static_cast<std::ptrdiff_t>(row * geometry.y.plane() +
                                                                         tile.first_pixel));
            }
          });
    } else {
      double_double_product(geometry, x.values, w, threads_, y.values);
    }
  }

  void add_bias(const std::string& bias, Tensor<T>& y) const {
    if (bias.empty()) return;
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      y.values[i] = y.values[i] + number(weight(bias)[i / y.shape.plane() % y.shape.c]);
    }
  }

  void compute(const Node& node, const Convolution& op, Tensor<T>& y) const {
    const Tensor<T>& x = operand(node);
    product({ProductKind::convolution, x.shape, y.shape, op.kernel, op.stride, op.pad_begin}, x,
            weight(op.weight), y);
    add_bias(op.bias, y);
  }

  void compute(const Node& node, const Depthwise& op, Tensor<T>& y) const {
    const Tensor<T>& x = operand(node);
    product({ProductKind::depthwise, x.shape, y.shape, op.kernel, op.stride, op.pad_begin}, x,
            weight(op.weight), y);
  }

  void compute(const Node& node, const Dense& op, Tensor<T>& y) const {
    const Tensor<T>& x = operand(node);
    product({ProductKind::dense, x.shape, y.shape}, x, weight(op.weight), y);
    add_bias(op.bias, y);
  }

  void compute(const Node& node, const Relu&, Tensor<T>& y) const {
    const std::vector<T>& x = operand(node).values;
    std::transform(x.begin(), x.end(), y.values.begin(), [](const T& v) { return relu(v); });
  }

  void compute(const Node& node, const Add&, Tensor<T>& y) const {
    const std::vector<T>& a = operand(node, 0).values;
    const std::vector<T>& b = operand(node, 1).values;
    std::transform(a.begin(), a.end(), b.begin(), y.values.begin(),
                   [](const T& u, const T& v) { return u + v; });
  }

  void compute(const Node& node, const GlobalAveragePool&, Tensor<T>& y) const {
    const Tensor<T>& x = operand(node);
    const T count(static_cast<double>(x.shape.plane()));
    for (std::size_t n = 0; n < x.shape.n; ++n) {
      for (std::size_t c = 0; c < x.shape.c; ++c) {
        T sum(0);
        for (const T& v : x.plane(n, c)) sum = sum + v;
        y.at(n, c, 0, 0) = sum / count;
      }
    }
  }

  void compute(const Node& node, const BnBatch& op, Tensor<T>& y) const {
    const Tensor<T>& x = operand(node);
    const T count(static_cast<double>(x.shape.n * x.shape.plane()));
    parallel_for(threads_, x.shape.c, [&](std::size_t c) {
      const auto sum = [&](auto term) {
        T total(0);
        for (std::size_t n = 0; n < x.shape.n; ++n) {
          for (const T& v : x.plane(n, c)) total = total + term(v);
        }
        return total;
      };
      const T mean = sum([](const T& v) { return v; }) / count;
      const T variance = sum([&](const T& v) {
                           const T d = v - mean;
                           return d * d;
                         }) /
                         count;
      const T scale = number(weight(op.gamma)[c]) * rsqrt(variance + number(op.epsilon));
      const T beta = number(weight(op.beta)[c]);
      for (std::size_t n = 0; n < x.shape.n; ++n) {
        const std::size_t first = x.index(n, c, 0, 0);
        for (std::size_t i = first; i < first + x.shape.plane(); ++i) {
          y.values[i] = (x.values[i] - mean) * scale + beta;
        }
      }
    });
  }

  template <class Other>
  void compute(const Node& node, const Other&, Tensor<T>&) const {
    throw std::invalid_argument("evaluate: " + node.name + " is no node of a batch-BN graph");
  }

  const Graph& graph_;
  const Weights& weights_;
  unsigned threads_;
  std::vector<Tensor<T>> values_;
};

}  // namespace

template <class T>
Tensor<T> evaluate(const Graph& graph, const Weights& weights, const Tensor<float>& input,
                   unsigned threads) {
  return Evaluation<T>(graph, weights, threads).run(input);
}

template Tensor<double> evaluate(const Graph&, const Weights&, const Tensor<float>&, unsigned);
template Tensor<DoubleDouble> evaluate(const Graph&, const Weights&, const Tensor<float>&,
                                       unsigned);

}  // namespace shardproof
