#include "device/engine/engine.h"

#include <algorithm>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace shardproof {
namespace {

std::size_t count(const Node& node, std::size_t batch) {
  return node.shape.size() * (node.per_example ? batch : 1);
}

}  // namespace

Engine::Engine(Device& device, const Graph& graph, const Weights& weights)
    : device_(device), graph_(graph), plan_(plan()) {
  require_weights(graph, weights);
  for (const Parameter& parameter : graph.parameters()) {
    Buffers& buffers = weights_[parameter.name];
    for (int r = 0; r < device_.replicas(); ++r) {
      buffers.push_back(device_.allocate(r, parameter.shape.size()));
      device_.upload(r, buffers.back(), weights.at(parameter.name).values.data(),
                     parameter.shape.size());
    }
  }
}

Engine::~Engine() {
  for (auto& [name, buffers] : weights_) release(buffers);
  for (Buffers& buffers : values_) release(buffers);
}

std::vector<Engine::Step> Engine::plan() const {
  const std::vector<Node>& nodes = graph_.nodes();
  std::vector<std::size_t> readers(nodes.size(), 0);
  for (const Node& node : nodes) {
    for (const NodeId operand : node.operands) ++readers[operand];
  }
  const auto fuses = [&](NodeId id) {  // a ReLU that alone reads a normalise
    return std::holds_alternative<Relu>(nodes[id].operation) &&
           std::holds_alternative<BnSync>(nodes[nodes[id].operands[0]].operation) &&
           readers[nodes[id].operands[0]] == 1;
  };
  std::vector<Step> steps;
  for (NodeId id = 0; id < nodes.size(); ++id) {
    const Node& node = nodes[id];
    if (std::holds_alternative<Input>(node.operation) ||
        std::holds_alternative<BnPack>(node.operation)) {
      continue;
    }
    if (fuses(id)) {
      const NodeId normalise = node.operands[0];
      std::find_if(steps.begin(), steps.end(), [&](const Step& step) {
        return step.computes == normalise;
      })->writes = id;
      continue;
    }
    Step step{id, id, node.operands};
    if (std::holds_alternative<BnSync>(
            node.operation)) {  // reads the two statistics, not their pack
      const Node& pack = graph_.node(node.operands[1]);
      step.reads = {node.operands[0], pack.operands[0], pack.operands[1]};
    } else if (std::holds_alternative<BnVarAt>(node.operation)) {  // and the replica's own mean
      step.reads.push_back(graph_.node(node.operands[1]).operands[0]);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

Engine::Buffers Engine::allocate(const Node& node, std::size_t batch) {
  Buffers buffers;
  for (int r = 0; r < device_.replicas(); ++r) {
    buffers.push_back(device_.allocate(r, count(node, batch)));
  }
  return buffers;
}

void Engine::release(Buffers& buffers) {
  for (std::size_t r = 0; r < buffers.size(); ++r) {
    device_.release(static_cast<int>(r), buffers[r]);
  }
  buffers.clear();
}

float* Engine::weight(const std::string& name, int replica) const {
  return weights_.at(name).at(static_cast<std::size_t>(replica));
}

Family<float> Engine::forward(const std::vector<Family<float>>& inputs, const Recorder& recorder) {
  const auto replicas = static_cast<std::size_t>(device_.replicas());
  const std::vector<NodeId> input_nodes = graph_.inputs();
  if (inputs.size() != input_nodes.size()) throw std::invalid_argument("engine: inputs missing");
  const std::size_t batch = inputs.at(0).at(0).shape.n;
  for (Buffers& buffers : values_) release(buffers);
  values_.assign(graph_.nodes().size(), {});

  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Node& node = graph_.node(input_nodes[i]);
    if (inputs[i].size() != replicas)
      throw std::invalid_argument("engine: a replica's input missing");
    values_[input_nodes[i]] = allocate(node, batch);
    for (std::size_t r = 0; r < replicas; ++r) {
      if (inputs[i][r].values.size() != count(node, batch)) {
        throw std::invalid_argument("engine: input " + node.name + " has another size");
      }
      device_.upload(static_cast<int>(r), values_[input_nodes[i]][r], inputs[i][r].values.data(),
                     count(node, batch));
    }
  }

  std::vector<std::size_t> last_reader(graph_.nodes().size(), 0);
  for (std::size_t s = 0; s < plan_.size(); ++s) {
    for (const NodeId id : plan_[s].reads) last_reader[id] = s;
  }
  const auto download = [&](NodeId id) {
    Shape shape = graph_.node(id).shape;
    if (graph_.node(id).per_example) shape.n = batch;
    Family<float> family;
    for (std::size_t r = 0; r < replicas; ++r) {
      Tensor<float> tensor(shape);
      device_.download(static_cast<int>(r), values_[id][r], tensor.values.data(), shape.size());
      family.push_back(std::move(tensor));
    }
    return family;
  };
  for (std::size_t s = 0; s < plan_.size(); ++s) {
    const Step& step = plan_[s];
    values_[step.writes] = allocate(graph_.node(step.writes), batch);
    launch(step, batch);
    if (recorder) recorder(step.writes, download(step.writes));
    for (const NodeId id : step.reads) {
      if (last_reader[id] == s) release(values_[id]);
    }
  }
  return download(graph_.output());
}

void Engine::launch(const Step& step, std::size_t batch) {
  const Node& node = graph_.node(step.computes);
  const auto replicas = static_cast<std::size_t>(device_.replicas());
  const auto each = [&](auto call) {
    for (std::size_t r = 0; r < replicas; ++r) call(static_cast<int>(r), r);
  };
  const Buffers& y = values_[step.writes];
  const Buffers& x = values_[step.reads[0]];
  const Shape in = graph_.node(step.reads[0]).shape;
  const Shape out = node.shape;
  std::visit(
      [&](const auto& op) {
        using T = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<T, Convolution>) {
          each([&](int r, std::size_t i) {
            device_.convolution({r, x[i], weight(op.weight, r),
                                 op.bias.empty() ? nullptr : weight(op.bias, r), y[i], batch, in.c,
                                 in.h, in.w, out.c, op.kernel, op.stride, op.pad_begin, op.pad_end,
                                 out.h, out.w});
          });
        } else if constexpr (std::is_same_v<T, Depthwise>) {
          each([&](int r, std::size_t i) {
            device_.depthwise({r, x[i], weight(op.weight, r), nullptr, y[i], batch, in.c, in.h,
                               in.w, op.kernel, op.stride, op.pad_begin, op.pad_end, out.h, out.w});
          });
        } else if constexpr (std::is_same_v<T, Dense>) {
          each([&](int r, std::size_t i) {
            device_.dense({r, x[i], weight(op.weight, r), weight(op.bias, r), y[i], batch,
                           in.example(), out.c});
          });
        } else if constexpr (std::is_same_v<T, Relu>) {
          each([&](int r, std::size_t i) { device_.relu({r, x[i], y[i], count(node, batch)}); });
        } else if constexpr (std::is_same_v<T, Add>) {
          const Buffers& b = values_[step.reads[1]];
          each([&](int r, std::size_t i) {
            device_.add({r, x[i], b[i], y[i], count(node, batch)});
          });
        } else if constexpr (std::is_same_v<T, GlobalAveragePool>) {
          each([&](int r, std::size_t i) {
            device_.global_average_pool({r, x[i], y[i], batch, in.c, in.plane()});
          });
        } else if constexpr (std::is_same_v<T, BnMean>) {
          each([&](int r, std::size_t i) {
            device_.channel_mean({r, x[i], y[i], batch, in.c, in.plane()});
          });
        } else if constexpr (std::is_same_v<T, BnVarAt>) {
          const Buffers& mean = values_[step.reads[1]];
          const Buffers& own_mean = values_[step.reads[2]];
          each([&](int r, std::size_t i) {
            device_.channel_variance(
                {r, x[i], own_mean[i], mean[i], y[i], batch, in.c, in.plane()});
          });
        } else if constexpr (std::is_same_v<T, BnSync>) {
          const bool relu = step.writes != step.computes;
          const Buffers& mean = values_[step.reads[1]];
          const Buffers& variance = values_[step.reads[2]];
          each([&](int r, std::size_t i) {
            device_.normalise({r, x[i], mean[i], variance[i], weight(op.gamma, r),
                               weight(op.beta, r), op.epsilon, relu, y[i], batch, in.c,
                               in.plane()});
          });
        } else if constexpr (std::is_same_v<T, AllReduceMean>) {
          device_.all_reduce_mean({{x.begin(), x.end()}, y, count(node, 1)});
        } else {
          throw std::logic_error("engine: no launch computes node " + node.name);
        }
      },
      node.operation);
  device_.synchronize();
}

}  // namespace shardproof
