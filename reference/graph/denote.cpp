#include "reference/graph/denote.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "reference/numbers/certified.h"
#include "reference/numbers/double_double.h"
#include "reference/numbers/interval.h"
#include "reference/numbers/rational.h"
#include "reference/numbers/real.h"

namespace shardproof {
namespace {

template <Real T>
class Denotation {
 public:
  Denotation(const Graph& graph, const Weights& weights) : graph_(graph) {
    require_weights(graph, weights);
    for (const Parameter& parameter : graph.parameters()) {
      weights_.emplace(parameter.name, exact<T>(weights.at(parameter.name)));
    }
  }

  std::vector<Family<T>> run(const std::vector<Family<T>>& inputs, std::span<const NodeId> wanted) {
    const std::vector<NodeId> last = graph_.last_readers();
    std::vector<bool> keep(graph_.nodes().size(), false);
    for (const NodeId id : wanted) keep.at(id) = true;
    values_.assign(graph_.nodes().size(), {});
    std::size_t next_input = 0;
    for (NodeId id = 0; id < graph_.nodes().size(); ++id) {
      const Node& node = graph_.node(id);
      if (std::holds_alternative<Input>(node.operation)) {
        values_[id] = checked_input(node, inputs, next_input++);
      } else {
        values_[id] = std::visit([&](const auto& operation) { return evaluate(node, operation); },
                                 node.operation);
      }
      for (const NodeId operand : node.operands) {
        if (last[operand] == id && !keep[operand]) values_[operand] = {};
      }
    }
    std::vector<Family<T>> results;
    for (const NodeId id : wanted) results.push_back(values_[id]);
    return results;
  }

 private:
  static Family<T> checked_input(const Node& node, const std::vector<Family<T>>& inputs,
                                 std::size_t index) {
    const Family<T>& family = inputs.at(index);
    if (family.empty() || family.size() != inputs.front().size()) {
      throw std::invalid_argument("denote: inputs of different replica counts");
    }
    for (const Tensor<T>& tensor : family) {
      Shape expected = node.shape;
      expected.n = inputs.front().front().shape.n;
      if (tensor.shape != expected) {
        throw std::invalid_argument("denote: input " + node.name + " is " +
                                    to_string(tensor.shape) + ", not " + to_string(expected));
      }
    }
    return family;
  }

  const Family<T>& operand(const Node& node, std::size_t index) const {
    return values_[node.operands.at(index)];
  }
  const Tensor<T>& weight(const std::string& name) const { return weights_.at(name); }

  // Applies `f` (tensor of one replica -> tensor of one replica) to every replica.
  template <class F>
  static Family<T> on_each(const Family<T>& family, F f) {
    Family<T> result;
    for (const Tensor<T>& tensor : family) result.push_back(f(tensor));
    return result;
  }

  // Sum over the window of `filter` at output pixel (oh, ow); padding adds nothing.
  template <class Window>
  static T window_sum(const Tensor<T>& x, const Window& window, const Tensor<T>& w, std::size_t n,
                      std::size_t in_channel, std::size_t filter, std::size_t filter_channel,
                      std::size_t oh, std::size_t ow, T sum) {
    for (std::size_t kh = 0; kh < window.kernel; ++kh) {
      for (std::size_t kw = 0; kw < window.kernel; ++kw) {
        const std::size_t h = oh * window.stride + kh;  // in padded coordinates
        const std::size_t v = ow * window.stride + kw;
        if (h < window.pad_begin || h - window.pad_begin >= x.shape.h) continue;
        if (v < window.pad_begin || v - window.pad_begin >= x.shape.w) continue;
        sum = sum + w.at(filter, filter_channel, kh, kw) *
                        x.at(n, in_channel, h - window.pad_begin, v - window.pad_begin);
      }
    }
    return sum;
  }

  static Tensor<T> like(const Node& node, std::size_t n) {
    Shape shape = node.shape;
    shape.n = n;
    return Tensor<T>(shape);
  }

  Family<T> evaluate(const Node& node, const Convolution& op) const {
    const Tensor<T>& w = weight(op.weight);
    return on_each(operand(node, 0), [&](const Tensor<T>& x) {
      Tensor<T> y = like(node, x.shape.n);
      for_each_output(y, [&](std::size_t n, std::size_t c, std::size_t oh, std::size_t ow) {
        T sum = from_double<T>(0);
        for (std::size_t i = 0; i < x.shape.c; ++i) {
          sum = window_sum(x, op, w, n, i, c, i, oh, ow, sum);
        }
        return op.bias.empty() ? sum : sum + weight(op.bias).values[c];
      });
      return y;
    });
  }

  Family<T> evaluate(const Node& node, const Depthwise& op) const {
    const Tensor<T>& w = weight(op.weight);
    return on_each(operand(node, 0), [&](const Tensor<T>& x) {
      Tensor<T> y = like(node, x.shape.n);
      for_each_output(y, [&](std::size_t n, std::size_t c, std::size_t oh, std::size_t ow) {
        return window_sum(x, op, w, n, c, c, 0, oh, ow, from_double<T>(0));
      });
      return y;
    });
  }

  Family<T> evaluate(const Node& node, const Dense& op) const {
    const Tensor<T>& w = weight(op.weight);
    const Tensor<T>& bias = weight(op.bias);
    return on_each(operand(node, 0), [&](const Tensor<T>& x) {
      Tensor<T> y = like(node, x.shape.n);
      for_each_output(y, [&](std::size_t n, std::size_t c, std::size_t, std::size_t) {
        T sum = from_double<T>(0);
        for (std::size_t i = 0; i < x.shape.example(); ++i) {
          sum = sum + x.values[n * x.shape.example() + i] * w.at(0, 0, i, c);
        }
        return sum + bias.values[c];
      });
      return y;
    });
  }

  Family<T> evaluate(const Node& node, const Relu&) const {
    return on_each(operand(node, 0), [](Tensor<T> x) {
      for (T& value : x.values) value = relu(value);
      return x;
    });
  }

  Family<T> evaluate(const Node& node, const Add&) const {
    Family<T> sum = operand(node, 0);
    for (std::size_t r = 0; r < sum.size(); ++r) {
      const Tensor<T>& b = operand(node, 1)[r];
      for (std::size_t i = 0; i < b.values.size(); ++i) {
        sum[r].values[i] = sum[r].values[i] + b.values[i];
      }
    }
    return sum;
  }

  Family<T> evaluate(const Node& node, const GlobalAveragePool&) const {
    return on_each(operand(node, 0), [&](const Tensor<T>& x) {
      Tensor<T> y = like(node, x.shape.n);
      for_each_output(y, [&](std::size_t n, std::size_t c, std::size_t, std::size_t) {
        T sum = from_double<T>(0);
        for (const T& value : x.plane(n, c)) sum = sum + value;
        return sum / from_double<T>(static_cast<double>(x.shape.plane()));
      });
      return y;
    });
  }

  // Sums f over the numbers of channel c of x.
  template <class F>
  static T channel_sum(const Tensor<T>& x, std::size_t c, F f) {
    T sum = from_double<T>(0);
    for (std::size_t n = 0; n < x.shape.n; ++n) {
      for (const T& value : x.plane(n, c)) sum = sum + f(value);
    }
    return sum;
  }
  static T channel_count(const Tensor<T>& x) {
    return from_double<T>(static_cast<double>(x.shape.n * x.shape.plane()));
  }
  static T channel_mean(const Tensor<T>& x, std::size_t c) {
    return channel_sum(x, c, [](const T& value) { return value; }) / channel_count(x);
  }
  static T channel_variance(const Tensor<T>& x, std::size_t c, const T& mean) {
    return channel_sum(x, c,
                       [&](const T& value) {
                         const T d = value - mean;
                         return d * d;
                       }) /
           channel_count(x);
  }

  Family<T> evaluate(const Node& node, const BnMean&) const {
    return on_each(operand(node, 0), [&](const Tensor<T>& x) {
      Tensor<T> mean(node.shape);
      for (std::size_t c = 0; c < x.shape.c; ++c) mean.values[c] = channel_mean(x, c);
      return mean;
    });
  }

  Family<T> evaluate(const Node& node, const BnVarAt&) const {
    Family<T> result;
    for (std::size_t r = 0; r < operand(node, 0).size(); ++r) {
      const Tensor<T>& x = operand(node, 0)[r];
      const Tensor<T>& global_mean = operand(node, 1)[r];
      Tensor<T> variance(node.shape);
      for (std::size_t c = 0; c < x.shape.c; ++c) {
        const T own_mean = channel_mean(x, c);
        const T between = own_mean - global_mean.values[c];
        variance.values[c] = channel_variance(x, c, own_mean) + between * between;
      }
      result.push_back(std::move(variance));
    }
    return result;
  }

  Family<T> evaluate(const Node& node, const AllReduceMean&) const {
    const Family<T>& family = operand(node, 0);
    Tensor<T> mean = family.front();
    for (std::size_t i = 0; i < mean.values.size(); ++i) {
      for (std::size_t r = 1; r < family.size(); ++r) {
        mean.values[i] = mean.values[i] + family[r].values[i];
      }
      mean.values[i] = mean.values[i] / from_double<T>(static_cast<double>(family.size()));
    }
    return Family<T>(family.size(), mean);
  }

  Family<T> evaluate(const Node& node, const BnPack&) const {
    Family<T> result;
    for (std::size_t r = 0; r < operand(node, 0).size(); ++r) {
      Tensor<T> pack(node.shape);
      const std::vector<T>& mean = operand(node, 0)[r].values;
      const std::vector<T>& variance = operand(node, 1)[r].values;
      pack.values = mean;
      pack.values.insert(pack.values.end(), variance.begin(), variance.end());
      result.push_back(std::move(pack));
    }
    return result;
  }

  // γ·(x − μ)·(σ² + ε)^(−1/2) + β
  template <class Site>
  Tensor<T> normalise(const Site& site, Tensor<T> x, std::span<const T> mean,
                      std::span<const T> variance) const {
    for (std::size_t c = 0; c < x.shape.c; ++c) {
      const T root = rsqrt(variance[c] + from_double<T>(static_cast<double>(site.epsilon)));
      const T& gamma = weight(site.gamma).values[c];
      const T& beta = weight(site.beta).values[c];
      for (std::size_t n = 0; n < x.shape.n; ++n) {
        for (std::size_t h = 0; h < x.shape.h; ++h) {
          for (std::size_t v = 0; v < x.shape.w; ++v) {
            T& value = x.at(n, c, h, v);
            value = gamma * (value - mean[c]) * root + beta;
          }
        }
      }
    }
    return x;
  }

  Family<T> evaluate(const Node& node, const BnSync& op) const {
    Family<T> result;
    for (std::size_t r = 0; r < operand(node, 0).size(); ++r) {
      const std::span<const T> pack = operand(node, 1)[r].values;
      const std::size_t channels = pack.size() / 2;
      result.push_back(
          normalise(op, operand(node, 0)[r], pack.first(channels), pack.last(channels)));
    }
    return result;
  }

  Family<T> evaluate(const Node& node, const BnBatch& op) const {
    return on_each(operand(node, 0), [&](const Tensor<T>& x) {
      std::vector<T> mean;
      std::vector<T> variance;
      for (std::size_t c = 0; c < x.shape.c; ++c) {
        mean.push_back(channel_mean(x, c));
        variance.push_back(channel_variance(x, c, mean[c]));
      }
      return normalise(op, x, mean, variance);
    });
  }

  Family<T> evaluate(const Node& node, const Input&) const {
    throw std::logic_error("denote: input " + node.name + " is fed, not evaluated");
  }

  template <class F>
  static void for_each_output(Tensor<T>& y, F f) {
    for (std::size_t n = 0; n < y.shape.n; ++n) {
      for (std::size_t c = 0; c < y.shape.c; ++c) {
        for (std::size_t h = 0; h < y.shape.h; ++h) {
          for (std::size_t w = 0; w < y.shape.w; ++w) y.at(n, c, h, w) = f(n, c, h, w);
        }
      }
    }
  }

  const Graph& graph_;
  std::map<std::string, Tensor<T>> weights_;
  std::vector<Family<T>> values_;
};

}  // namespace

template <class T>
Tensor<T> exact(const Tensor<float>& tensor) {
  Tensor<T> result(tensor.shape);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    result.values[i] = from_double<T>(static_cast<double>(tensor.values[i]));
  }
  return result;
}

template <class T>
std::vector<Family<T>> denote(const Graph& graph, const Weights& weights,
                              const std::vector<Family<T>>& inputs,
                              std::span<const NodeId> wanted) {
  return Denotation<T>(graph, weights).run(inputs, wanted);
}

template <class T>
Tensor<T> denote_on_one_device(const Graph& graph, const Weights& weights, const Tensor<T>& input) {
  const NodeId wanted = graph.output();
  return denote<T>(graph, weights, {{input}}, {&wanted, 1}).front().front();
}

template Tensor<float> exact(const Tensor<float>&);
template std::vector<Family<float>> denote(const Graph&, const Weights&,
                                           const std::vector<Family<float>>&,
                                           std::span<const NodeId>);
template Tensor<float> denote_on_one_device(const Graph&, const Weights&, const Tensor<float>&);
template Tensor<double> exact(const Tensor<float>&);
template std::vector<Family<double>> denote(const Graph&, const Weights&,
                                            const std::vector<Family<double>>&,
                                            std::span<const NodeId>);
template Tensor<double> denote_on_one_device(const Graph&, const Weights&, const Tensor<double>&);
template Tensor<Rational> exact(const Tensor<float>&);
template std::vector<Family<Rational>> denote(const Graph&, const Weights&,
                                              const std::vector<Family<Rational>>&,
                                              std::span<const NodeId>);
template Tensor<Rational> denote_on_one_device(const Graph&, const Weights&,
                                               const Tensor<Rational>&);
template Tensor<Certified> exact(const Tensor<float>&);
template std::vector<Family<Certified>> denote(const Graph&, const Weights&,
                                               const std::vector<Family<Certified>>&,
                                               std::span<const NodeId>);
template Tensor<Certified> denote_on_one_device(const Graph&, const Weights&,
                                                const Tensor<Certified>&);
template Tensor<DoubleDouble> exact(const Tensor<float>&);
template std::vector<Family<DoubleDouble>> denote(const Graph&, const Weights&,
                                                  const std::vector<Family<DoubleDouble>>&,
                                                  std::span<const NodeId>);
template Tensor<DoubleDouble> denote_on_one_device(const Graph&, const Weights&,
                                                   const Tensor<DoubleDouble>&);
template Tensor<Interval<30>> exact(const Tensor<float>&);
template std::vector<Family<Interval<30>>> denote(const Graph&, const Weights&,
                                                  const std::vector<Family<Interval<30>>>&,
                                                  std::span<const NodeId>);
template Tensor<Interval<30>> denote_on_one_device(const Graph&, const Weights&,
                                                   const Tensor<Interval<30>>&);
template Tensor<Interval<80>> exact(const Tensor<float>&);
template std::vector<Family<Interval<80>>> denote(const Graph&, const Weights&,
                                                  const std::vector<Family<Interval<80>>>&,
                                                  std::span<const NodeId>);
template Tensor<Interval<80>> denote_on_one_device(const Graph&, const Weights&,
                                                   const Tensor<Interval<80>>&);
template Tensor<Interval<160>> exact(const Tensor<float>&);
template std::vector<Family<Interval<160>>> denote(const Graph&, const Weights&,
                                                   const std::vector<Family<Interval<160>>>&,
                                                   std::span<const NodeId>);
template Tensor<Interval<160>> denote_on_one_device(const Graph&, const Weights&,
                                                    const Tensor<Interval<160>>&);
template Tensor<Interval<320>> exact(const Tensor<float>&);
template std::vector<Family<Interval<320>>> denote(const Graph&, const Weights&,
                                                   const std::vector<Family<Interval<320>>>&,
                                                   std::span<const NodeId>);
template Tensor<Interval<320>> denote_on_one_device(const Graph&, const Weights&,
                                                    const Tensor<Interval<320>>&);

}  // namespace shardproof
