// PlainDevice: the operations of device.h as plain loops, in any order of additions and with any
// arithmetic that a contract can state. A correct device, when it states its own contract.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/engine/device.h"
#include "device/engine/forwarding_device.h"
#include "reference/numbers/bfloat16.h"
#include "reference/numbers/random.h"

namespace shardproof {

struct Arithmetic {
  enum class Order { forward, backward, random, tree };

  std::string name;
  Order order = Order::forward;  // in which the terms of a sum are dealt to the lanes; not `tree`
  std::size_t lanes = 1;         // running sums, then a tree
  bool compensated = false;      // Kahan
  Accumulate accumulate = Accumulate::float32;  // the running sums; the all-reduce keeps float32
  Operands operands = Operands::float32;        // of products
  bool bias_first = false;                      // sums start from the bias, else it is added last
  bool truncated = false;                       // operands are cut to tf32, not rounded
  bool contracted = false;                      // products and sums in one rounding
  MeanDivision mean = MeanDivision::divide;
  StatisticsMethod statistics = StatisticsMethod::two_pass;
  std::size_t chunk = 1;  // numbers of a chunk of `merged`; joined as `reduce` says
  NormaliseForm form = NormaliseForm::subtract_first;
  double root = 0;  // ulps by which the reciprocal root errs; 0: rounded root, rounded quotient
  bool gamma_last = false;  // ((x − μ)·r)·γ in place of (x − μ)·(r·γ)
  Order reduce = Order::forward;
  bool reduce_alone = false;  // `mean` is of the all-reduce only
  bool flushed = false;       // subnormal operands and results become zero
};

// The contract that such arithmetic keeps.
inline Contract contract_of(const Arithmetic& arithmetic) {
  Contract contract;
  contract.lanes = arithmetic.lanes;
  contract.accumulate = arithmetic.accumulate;
  contract.operands = arithmetic.operands;
  contract.mean = arithmetic.mean;
  contract.statistics = arithmetic.statistics;
  contract.form = arithmetic.form;
  contract.contraction = arithmetic.contracted;
  contract.subnormals_kept = !arithmetic.flushed;
  contract.root = arithmetic.root == 0 ? 1.5 : arithmetic.root;
  contract.root_exact_at_powers_of_four = arithmetic.root == 0;
  return contract;
}

// While it lives, the processor treats subnormal numbers as zero, if asked to and if it can.
class FlushSubnormals {
 public:
#if defined(__SSE2__)
  explicit FlushSubnormals(bool flush) : before_(_mm_getcsr()) {
    if (flush) _mm_setcsr(before_ | 0x8040U);  // results, operands
  }
  ~FlushSubnormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
  explicit FlushSubnormals(bool) {}
#endif
};

// sum + a·b as an accumulator of that kind gives it; `contracted` in one rounding, where it can.
inline double accumulated(Accumulate kind, double sum, float a, float b, bool contracted) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const float rounded = a * b;
  switch (kind) {
    case Accumulate::float32:
      return static_cast<double>(contracted ? std::fma(a, b, static_cast<float>(sum))
                                            : static_cast<float>(sum) + rounded);
    case Accumulate::float64:
      return sum + product;
    case Accumulate::tensor_core: {  // towards zero, to 24 bits
      const double exact = sum + static_cast<double>(rounded);
      const auto nearest = static_cast<float>(exact);
      const bool away = std::abs(static_cast<double>(nearest)) > std::abs(exact);
      return static_cast<double>(away ? std::nextafter(nearest, 0.0F) : nearest);
    }
    case Accumulate::bfloat16:
      return double(BFloat16(sum + double(BFloat16(rounded))));
    case Accumulate::float16:
      return static_cast<double>(
          static_cast<_Float16>(sum + static_cast<double>(static_cast<_Float16>(rounded))));
  }
  return 0;
}

class PlainDevice : public Device {
 public:
  PlainDevice(std::size_t replicas, Arithmetic arithmetic)
      : PlainDevice(replicas, arithmetic, contract_of(arithmetic)) {}
  // A device that states another contract than its own.
  PlainDevice(std::size_t replicas, Arithmetic arithmetic, const Contract& contract)
      : replicas_(static_cast<int>(replicas)), does_(std::move(arithmetic)), states_(contract) {}

  std::string name() const override { return does_.name; }
  int replicas() const override { return replicas_; }
  Contract contract(Operation operation, std::size_t, std::size_t) const override {
    Contract contract = states_;
    if (operation == Operation::all_reduce_mean) contract.accumulate = Accumulate::float32;
    if (does_.reduce_alone && operation != Operation::all_reduce_mean) {
      contract.mean = MeanDivision::divide;
    }
    return contract;
  }

  float* allocate(int, std::size_t count) override {
    auto memory = std::make_unique<float[]>(count);
    float* const pointer = memory.get();
    std::fill_n(pointer, count, std::numeric_limits<float>::quiet_NaN());
    memory_.emplace(pointer, std::move(memory));
    return pointer;
  }
  void release(int, float* pointer) override { memory_.erase(pointer); }
  void upload(int, float* to, const float* from, std::size_t count) override {
    std::copy_n(from, count, to);
  }
  void download(int, const float* from, float* to, std::size_t count) override {
    std::copy_n(from, count, to);
  }
  void synchronize() override {}

  void convolution(const ConvolutionCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    for (std::size_t n = 0; n < call.batch; ++n) {
      for (std::size_t out = 0; out < call.out_channels; ++out) {
        windows(call, call.in_channels, call.x + n * call.in_channels * call.height * call.width,
                call.weight + out * call.in_channels * call.kernel * call.kernel,
                call.bias == nullptr ? nullptr : call.bias + out,
                call.y + (n * call.out_channels + out) * call.out_height * call.out_width);
      }
    }
  }
  void depthwise(const DepthwiseCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    for (std::size_t plane = 0; plane < call.batch * call.channels; ++plane) {
      const std::size_t c = plane % call.channels;
      windows(call, 1, call.x + plane * call.height * call.width,
              call.weight + c * call.kernel * call.kernel,
              call.bias == nullptr ? nullptr : call.bias + c,
              call.y + plane * call.out_height * call.out_width);
    }
  }
  void dense(const DenseCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    for (std::size_t n = 0; n < call.batch; ++n) {
      for (std::size_t out = 0; out < call.out; ++out) {
        const auto term = [&](std::size_t i) {
          return Term{operand(call.x[n * call.in + i]), operand(call.weight[i * call.out + out])};
        };
        call.y[n * call.out + out] =
            product(call.in, term, call.bias == nullptr ? nullptr : call.bias + out);
      }
    }
  }

  void channel_mean(const ChannelMeanCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    for (std::size_t c = 0; c < call.channels; ++c) {
      const auto x = [&](std::size_t j) { return number(call, c, j); };
      const std::size_t m = call.batch * call.plane;
      if (is_running()) {
        call.mean[c] = running(m, x).mean;
      } else if (does_.statistics == StatisticsMethod::shifted) {
        const float first = x(0);
        call.mean[c] = first + mean(m, [&](std::size_t j) { return Term{x(j) - first, 1}; });
      } else {
        call.mean[c] = mean(m, [&](std::size_t j) { return Term{x(j), 1}; });
      }
    }
  }
  void channel_variance(const ChannelVarianceCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    for (std::size_t c = 0; c < call.channels; ++c) {
      const auto x = [&](std::size_t j) { return number(call, c, j); };
      const std::size_t m = call.batch * call.plane;
      const float own = call.own_mean[c];
      float variance = 0;
      if (is_running()) {
        variance = running(m, x).squares / static_cast<float>(m);
      } else if (does_.statistics == StatisticsMethod::shifted) {
        const auto d = [&](std::size_t j) { return x(j) - x(0); };
        const float shift = mean(m, [&](std::size_t j) { return Term{d(j), 1}; });
        const float second = mean(m, [&](std::size_t j) { return Term{d(j), d(j)}; });
        variance = does_.contracted ? std::fma(-shift, shift, second) : second - shift * shift;
      } else if (does_.statistics == StatisticsMethod::one_pass) {
        const float second = mean(m, [&](std::size_t j) { return Term{x(j), x(j)}; });
        variance = does_.contracted ? std::fma(-own, own, second) : second - own * own;
      } else {
        variance = mean(m, [&](std::size_t j) {
          const float d = x(j) - own;
          return Term{d, d};
        });
      }
      const float distance = own - call.mean[c];
      call.variance[c] = multiply_add(distance, distance, variance);
    }
  }
  void normalise(const NormaliseCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    for (std::size_t row = 0; row < call.batch * call.channels; ++row) {
      const std::size_t c = row % call.channels;
      const float root = reciprocal_root(call.variance[c] + call.epsilon);
      const float scale = call.gamma[c] * root;
      const float shift = multiply_add(-call.mean[c], scale, call.beta[c]);
      for (std::size_t i = row * call.plane; i < (row + 1) * call.plane; ++i) {
        const float d = call.x[i] - call.mean[c];
        const float y = does_.form == NormaliseForm::fused ? multiply_add(call.x[i], scale, shift)
                        : does_.gamma_last ? multiply_add(d * root, call.gamma[c], call.beta[c])
                                           : multiply_add(d, scale, call.beta[c]);
        call.y[i] = call.relu && y < 0 ? 0 : y;
      }
    }
  }
  void global_average_pool(const PoolCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    for (std::size_t i = 0; i < call.batch * call.channels; ++i) {
      call.y[i] = mean(call.plane, [&](std::size_t j) {
        return Term{call.x[i * call.plane + j], 1};
      });
    }
  }
  void relu(const PointwiseCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    for (std::size_t i = 0; i < call.count; ++i) call.y[i] = call.x[i] < 0 ? 0 : call.x[i];
  }
  void add(const AddCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    for (std::size_t i = 0; i < call.count; ++i) call.y[i] = call.a[i] + call.b[i];
  }

  void all_reduce_mean(const AllReduceMeanCall& call) override {
    const FlushSubnormals flush(does_.flushed);
    const std::size_t ranks = call.send.size();
    const float factor = 1 / static_cast<float>(ranks);
    std::vector<float> terms(ranks);
    for (std::size_t i = 0; i < call.count; ++i) {
      for (std::size_t r = 0; r < ranks; ++r) {
        terms[r] = call.send[r][i];
        if (does_.mean == MeanDivision::premultiply) terms[r] *= factor;
      }
      float total = reduced(terms);
      if (does_.mean == MeanDivision::divide) total /= static_cast<float>(ranks);
      if (does_.mean == MeanDivision::reciprocal) total *= factor;
      for (float* to : call.receive) to[i] = total;
    }
  }

 protected:
  // Number j of a channel.
  template <class Call>
  static float number(const Call& call, std::size_t channel, std::size_t j) {
    return call.x[(j / call.plane * call.channels + channel) * call.plane + j % call.plane];
  }

 private:
  using Order = Arithmetic::Order;
  struct Term {  // a·b
    float a, b;
  };

  float multiply_add(float a, float b, float c) const {
    return does_.contracted ? std::fma(a, b, c) : a * b + c;
  }

  // 0 … n − 1 in the order in which terms are taken.
  const std::vector<std::size_t>& order_of(std::size_t n) {
    std::vector<std::size_t>& order = orders_[n];
    if (order.empty()) {
      order.resize(n);
      std::iota(order.begin(), order.end(), std::size_t{0});
      if (does_.order == Order::backward) std::reverse(order.begin(), order.end());
      if (does_.order == Order::random) Random(n).shuffle(std::span(order));
    }
    return order;
  }

  static float added(float a, float b) { return a + b; }
  double added(double a, double b) const {
    if (does_.accumulate == Accumulate::float64) return a + b;
    return accumulated(does_.accumulate, a, static_cast<float>(b), 1, false);
  }

  float operand(float x) const {
    switch (does_.operands) {
      case Operands::float32:
        return x;
      case Operands::tf32:
        return does_.truncated ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & ~0x1FFFU)
                               : round_to_tf32(x);
      case Operands::bfloat16:
        return round_to_bfloat16(x);
      case Operands::float16:
        return static_cast<float>(static_cast<_Float16>(x));
    }
    return x;
  }

  template <class Sum, class Step>
  float sum_in_lanes(std::size_t n, float start, Step step) {
    std::vector<Sum> sums(does_.lanes, Sum{0});
    sums[0] = start;
    if (n > 0) {
      const std::vector<std::size_t>& order = order_of(n);
      for (std::size_t j = 0; j < n; ++j) {
        const std::size_t lane = j % does_.lanes;
        sums[lane] = step(sums[lane], lane, order[j]);
      }
    }
    for (std::size_t half = does_.lanes / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        sums[i] = added(sums[i], sums[i + half]);
      }
    }
    return static_cast<float>(sums[0]);
  }

  template <class Terms>
  float sum(std::size_t n, Terms term, float start = 0) {
    if (does_.accumulate != Accumulate::float32) {
      return sum_in_lanes<double>(n, start, [&](double sum, std::size_t, std::size_t j) {
        const Term t = term(j);
        return accumulated(does_.accumulate, sum, t.a, t.b, does_.contracted);
      });
    }
    if (does_.compensated) {
      std::vector<float> lost(does_.lanes, 0);
      return sum_in_lanes<float>(n, start, [&](float sum, std::size_t lane, std::size_t j) {
        const Term t = term(j);
        const float with = t.a * t.b - lost[lane];
        const float next = sum + with;
        lost[lane] = std::isfinite(next) ? (next - sum) - with : 0;
        return next;
      });
    }
    return sum_in_lanes<float>(n, start, [&](float sum, std::size_t, std::size_t j) {
      const Term t = term(j);
      return multiply_add(t.a, t.b, sum);
    });
  }

  template <class Terms>
  float product(std::size_t n, Terms term, const float* bias) {
    if (bias == nullptr) return sum(n, term);
    return does_.bias_first ? sum(n, term, *bias) : sum(n, term) + *bias;
  }

  template <class Terms>
  float mean(std::size_t n, Terms term) {
    const MeanDivision division = does_.reduce_alone ? MeanDivision::divide : does_.mean;
    const float count = static_cast<float>(n);
    if (division == MeanDivision::premultiply) {
      const float factor = 1 / count;
      return sum(n, [&](std::size_t j) {
        const Term t = term(j);
        return Term{t.a * t.b, factor};
      });
    }
    const float total = sum(n, term);
    return division == MeanDivision::reciprocal ? total * (1 / count) : total / count;
  }

  bool is_running() const {
    return does_.statistics == StatisticsMethod::welford ||
           does_.statistics == StatisticsMethod::merged;
  }
  struct Running {
    float count = 0, mean = 0, squares = 0;
  };
  // Chan, Golub and LeVeque (1983).
  static Running joined(const Running& a, const Running& b) {
    const float count = a.count + b.count, d = b.mean - a.mean;
    return {count, a.mean + d * (b.count / count),
            a.squares + b.squares + d * d * (a.count * b.count / count)};
  }
  template <class Numbers>
  Running welford(std::size_t first, std::size_t end, Numbers x) {
    Running running;
    for (std::size_t j = first; j < end; ++j) {
      running.count += 1;
      const float d = x(j) - running.mean;
      running.mean += d / running.count;
      running.squares += d * (x(j) - running.mean);
    }
    return running;
  }
  // One run over all numbers, or chunks that are joined one after another, each to what came before
  // or what came before to each, or pairwise.
  template <class Numbers>
  Running running(std::size_t n, Numbers x) {
    if (does_.statistics == StatisticsMethod::welford) return welford(0, n, x);
    std::vector<Running> chunks;
    for (std::size_t first = 0; first < n; first += does_.chunk) {
      chunks.push_back(welford(first, std::min(first + does_.chunk, n), x));
    }
    while (does_.reduce == Order::tree && chunks.size() > 1) {
      for (std::size_t i = 0; i + 1 < chunks.size(); i += 2)
        chunks[i / 2] = joined(chunks[i], chunks[i + 1]);
      if (chunks.size() % 2 != 0) chunks[chunks.size() / 2] = chunks.back();
      chunks.resize((chunks.size() + 1) / 2);
    }
    Running all = chunks[0];
    for (std::size_t i = 1; i < chunks.size(); ++i) {
      all = does_.reduce == Order::backward ? joined(chunks[i], all) : joined(all, chunks[i]);
    }
    return all;
  }

  // The rounded root, or the float32 number farthest from the exact root within does_.root ulps, on
  // a side that depends on the argument.
  float reciprocal_root(float argument) const {
    const double exact = 1 / std::sqrt(static_cast<double>(argument));
    const bool ordinary = std::isfinite(exact) && exact > 0;
    if (does_.root == 0 || !ordinary) return 1 / std::sqrt(argument);
    const double reach = does_.root * std::ldexp(1.0, std::ilogb(exact) - 23);
    const bool up = Random(static_cast<std::uint64_t>(1e6 * exact)).coin();
    float root = static_cast<float>(exact);
    for (;;) {
      const float next = std::nextafter(root, up ? std::numeric_limits<float>::infinity() : 0.0F);
      if (!(std::abs(static_cast<double>(next) - exact) <= reach)) return root;
      root = next;
    }
  }

  float reduced(std::vector<float> terms) const {
    if (does_.reduce == Order::backward) std::reverse(terms.begin(), terms.end());
    if (does_.reduce == Order::random) Random(terms.size()).shuffle(std::span(terms));
    if (does_.reduce == Order::tree) {
      while (terms.size() > 1) {
        for (std::size_t i = 0; i + 1 < terms.size(); i += 2)
          terms[i / 2] = terms[i] + terms[i + 1];
        if (terms.size() % 2 != 0) terms[terms.size() / 2] = terms.back();
        terms.resize((terms.size() + 1) / 2);
      }
      return terms[0];
    }
    return std::accumulate(terms.begin() + 1, terms.end(), terms[0]);
  }

  // One channel of outputs; terms are channel after channel, row after row. Padding is left out.
  template <class Call>
  void windows(const Call& call, std::size_t channels, const float* x, const float* weight,
               const float* bias, float* y) {
    std::vector<Term> terms;
    for (std::size_t oy = 0; oy < call.out_height; ++oy) {
      for (std::size_t ox = 0; ox < call.out_width; ++ox) {
        terms.clear();
        for (std::size_t i = 0; i < channels * call.kernel * call.kernel; ++i) {
          const std::size_t iy =  // wraps in the padding
              oy * call.stride + i / call.kernel % call.kernel - call.pad_begin;
          const std::size_t ix = ox * call.stride + i % call.kernel - call.pad_begin;
          if (iy >= call.height || ix >= call.width) continue;
          const std::size_t channel = i / (call.kernel * call.kernel);
          terms.push_back(
              {operand(x[(channel * call.height + iy) * call.width + ix]), operand(weight[i])});
        }
        y[oy * call.out_width + ox] = product(
            terms.size(), [&](std::size_t j) { return terms[j]; }, bias);
      }
    }
  }

  int replicas_;
  Arithmetic does_;
  Contract states_;
  std::map<const float*, std::unique_ptr<float[]>> memory_;
  std::map<std::size_t, std::vector<std::size_t>> orders_;
};

struct AllReduceWithoutDivide : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void all_reduce_mean(const AllReduceMeanCall& call) override {
    base().all_reduce_mean(call);
    for (float* numbers : call.receive) {
      for (std::size_t i = 0; i < call.count; ++i) numbers[i] *= static_cast<float>(replicas());
    }
  }
};

// One replica gets the next float32 number in the last place.
struct OneReplicaAnUlpOff : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void all_reduce_mean(const AllReduceMeanCall& call) override {
    base().all_reduce_mean(call);
    float& last = call.receive.back()[call.count - 1];
    last = std::nextafter(last, std::numeric_limits<float>::infinity());
  }
};

}  // namespace shardproof
