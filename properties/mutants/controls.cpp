// Correct kernels in other arithmetic than the built-in device's, with the contracts that they
// keep.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;

constexpr Recipe kPlain;

shardproof_contract contract_of(const Recipe& recipe) {
  shardproof_contract contract{};
  if (recipe.block == 0) contract.lanes = recipe.lanes;
  contract.operands = 1 + static_cast<std::uint32_t>(recipe.operands);
  switch (recipe.sum) {
    case Recipe::Sum::float32:
      break;
    case Recipe::Sum::float64:
      contract.accumulate = SHARDPROOF_ACCUMULATE_FLOAT64;
      break;
    case Recipe::Sum::bfloat16:
      contract.accumulate = SHARDPROOF_ACCUMULATE_BFLOAT16;
      break;
    case Recipe::Sum::float16:
      contract.accumulate = SHARDPROOF_ACCUMULATE_FLOAT16;
      break;
    case Recipe::Sum::tensor_core:
      contract.accumulate = SHARDPROOF_ACCUMULATE_TENSOR_CORE;
  }
  contract.mean = 1 + static_cast<std::uint32_t>(recipe.mean);
  return contract;
}

// Products in that arithmetic.
template <Recipe recipe>
void fill_products(shardproof_candidate_table& t) {
  t.convolution = convolution<recipe>;
  t.depthwise = convolution<recipe>;
  t.dense = dense<recipe>;
  for (const int operation : {SHARDPROOF_CONVOLUTION, SHARDPROOF_DEPTHWISE, SHARDPROOF_DENSE}) {
    t.contracts[operation] = contract_of(recipe);
  }
}
// Statistics and pools.
template <Recipe recipe>
void fill_statistics(shardproof_candidate_table& t) {
  t.channel_mean = channel_mean<recipe>;
  t.channel_variance = channel_variance<recipe>;
  t.global_average_pool = global_average_pool<recipe>;
  for (const int operation :
       {SHARDPROOF_CHANNEL_MEAN, SHARDPROOF_CHANNEL_VARIANCE, SHARDPROOF_GLOBAL_AVERAGE_POOL}) {
    t.contracts[operation] = contract_of(recipe);
  }
}
template <Recipe recipe>
void fill_sums(shardproof_candidate_table& t) {
  fill_products<recipe>(t);
  fill_statistics<recipe>(t);
}
template <Recipe recipe>
void fill_reduce(shardproof_candidate_table& t) {
  t.all_reduce_mean = all_reduce_mean<recipe>;
  t.contracts[SHARDPROOF_ALL_REDUCE_MEAN] = contract_of(recipe);
}

// Two running values a channel: its mean, and the sum of squares about it (Welford 1962).
struct Moments {
  float count = 0, mean = 0, squares = 0;

  void add(float x) {
    count += 1;
    const float delta = x - mean;
    mean += delta / count;
    squares += delta * (x - mean);
  }
  // Chan, Golub and LeVeque (1983).
  void join(const Moments& other) {
    if (other.count == 0) return;
    const float all = count + other.count, delta = other.mean - mean;
    mean += delta * (other.count / all);
    squares += other.squares + delta * delta * (count * other.count / all);
    count = all;
  }
};
Moments in_order(const Channel& x, std::size_t first, std::size_t end) {
  Moments moments;
  for (std::size_t i = first; i < end; ++i) moments.add(x(i));
  return moments;
}
// Of chunks of so many numbers, joined in order.
template <std::size_t chunk>
Moments merged(const Channel& x) {
  Moments moments;
  for (std::size_t first = 0; first < x.size(); first += chunk) {
    moments.join(in_order(x, first, std::min(first + chunk, x.size())));
  }
  return moments;
}
float second_moment_of(const Moments& moments, float own_mean, float mean) {
  const float between = own_mean - mean;
  return moments.squares / moments.count + between * between;
}

void add_sums(std::vector<Mutant>& controls) {
  const auto add = [&](const char* name, const char* what, bool needs_contract,
                       void (*fill)(shardproof_candidate_table&)) {
    controls.push_back({name, "", what, true, needs_contract, fill});
  };
  using Order = Recipe::Order;
  using Sum = Recipe::Sum;
  add("sums-in-order", "one running sum, first to last", false, fill_sums<kPlain>);
  add("sums-backward", "one running sum, last to first", false,
      fill_sums<Recipe{.order = Order::backward}>);
  add("sums-strided", "even terms, then odd ones", false,
      fill_sums<Recipe{.order = Order::strided}>);
  add("sums-in-2-lanes", "two running sums", false, fill_sums<Recipe{.lanes = 2}>);
  add("sums-in-4-lanes", "four, as a vector register of SSE has", false,
      fill_sums<Recipe{.lanes = 4}>);
  add("sums-in-8-lanes", "eight, as AVX has", false, fill_sums<Recipe{.lanes = 8}>);
  add("sums-in-32-lanes", "a warp", false, fill_sums<Recipe{.lanes = 32}>);
  add("sums-in-128-lanes", "a block of four warps", false, fill_sums<Recipe{.lanes = 128}>);
  add("sums-in-512-lanes", "a block of sixteen warps", false, fill_sums<Recipe{.lanes = 512}>);
  add("sums-in-16-lanes-backward", "sixteen running sums, dealt from the end", false,
      fill_sums<Recipe{.order = Order::backward, .lanes = 16}>);
  add("sums-in-16-lanes-unsaid", "sixteen running sums that the contract does not state", false,
      [](shardproof_candidate_table& t) {
        fill_sums<Recipe{.lanes = 16}>(t);
        for (shardproof_contract& contract : t.contracts) contract.lanes = 0;
      });
  add("sums-of-blocks-of-32", "sums of 32 terms, added in order", false,
      fill_sums<Recipe{.block = 32}>);
  add("sums-of-blocks-of-7-backward", "sums of seven terms, each from its end", false,
      fill_sums<Recipe{.order = Order::backward, .block = 7}>);
  add("sums-of-blocks-of-256-in-8-lanes", "as a tile of a product has them", false,
      fill_sums<Recipe{.lanes = 8, .block = 256}>);
  add("sums-compensated", "Kahan's summation", false, fill_sums<Recipe{.compensated = true}>);
  add("sums-fused", "every product and sum in one rounding", false,
      fill_sums<Recipe{.contracted = true}>);
  add("sums-fused-in-8-lanes", "eight running sums of fused products", false,
      fill_sums<Recipe{.lanes = 8, .contracted = true}>);
  add("sums-in-float64", "float64 running sums, stated", false,
      fill_sums<Recipe{.sum = Sum::float64}>);
  add("sums-in-float64-unsaid", "float64 running sums, not stated", false,
      [](shardproof_candidate_table& t) {
        fill_sums<Recipe{.sum = Sum::float64}>(t);
        for (shardproof_contract& contract : t.contracts) contract.accumulate = 0;
      });
  add("products-from-the-bias-on", "the bias starts the sum", false,
      fill_products<Recipe{.bias_first = true}>);
  add("products-fused-from-the-bias-on", "the bias starts a fused sum", false,
      fill_products<Recipe{.contracted = true, .bias_first = true}>);
  add("means-by-the-reciprocal", "S·(1/n)", true,
      fill_statistics<Recipe{.mean = Recipe::Mean::reciprocal}>);
  add("means-premultiplied", "Σ x·(1/n)", true,
      fill_statistics<Recipe{.mean = Recipe::Mean::premultiply}>);
  add("products-in-tf32", "operands rounded to tf32", true,
      fill_products<Recipe{.operands = Recipe::Operands::tf32}>);
  add("products-in-bfloat16", "operands rounded to bfloat16", true,
      fill_products<Recipe{.operands = Recipe::Operands::bfloat16}>);
  add("products-in-float16", "operands rounded to float16", true,
      fill_products<Recipe{.operands = Recipe::Operands::float16}>);
  add("products-on-tensor-cores", "truncated sums", true,
      fill_products<Recipe{.sum = Sum::tensor_core}>);
  add("products-in-bfloat16-sums", "bfloat16 running sums", true,
      fill_products<Recipe{.sum = Sum::bfloat16}>);
  add("statistics-in-bfloat16-sums", "bfloat16 running sums", true,
      fill_statistics<Recipe{.sum = Sum::bfloat16}>);
}

void add_statistics(std::vector<Mutant>& controls) {
  const auto add = [&](const char* name, const char* what, bool needs_contract,
                       void (*fill)(shardproof_candidate_table&)) {
    controls.push_back({name, "", what, true, needs_contract, fill});
  };
  add("variance-of-one-pass", "Σx²/m − mean²", true, [](shardproof_candidate_table& t) {
    t.channel_variance = [](const shardproof_channel_variance* c) {
      return each_variance(c, [](Channel x, float own, float mean) {
        const float between = own - mean;
        return std::max(second_moment<kPlain>(x, 0) - own * own, 0.0F) + between * between;
      });
    };
    t.contracts[SHARDPROOF_CHANNEL_VARIANCE].statistics = SHARDPROOF_STATISTICS_ONE_PASS;
  });
  add("variance-by-welford", "a running mean and sum of squares", true,
      [](shardproof_candidate_table& t) {
        t.channel_variance = [](const shardproof_channel_variance* c) {
          return each_variance(c, [](Channel x, float own, float mean) {
            return second_moment_of(in_order(x, 0, x.size()), own, mean);
          });
        };
        t.contracts[SHARDPROOF_CHANNEL_VARIANCE].statistics = SHARDPROOF_STATISTICS_WELFORD;
      });
  add("statistics-by-welford", "mean and variance by Welford's updates", true,
      [](shardproof_candidate_table& t) {
        t.channel_mean = [](const shardproof_channel_mean* c) {
          return each_mean(c, [](Channel x) { return in_order(x, 0, x.size()).mean; });
        };
        t.channel_variance = [](const shardproof_channel_variance* c) {
          return each_variance(c, [](Channel x, float own, float mean) {
            return second_moment_of(in_order(x, 0, x.size()), own, mean);
          });
        };
        for (const int operation : {SHARDPROOF_CHANNEL_MEAN, SHARDPROOF_CHANNEL_VARIANCE}) {
          t.contracts[operation].statistics = SHARDPROOF_STATISTICS_WELFORD;
        }
      });
  add("variance-merged-by-counts", "chunks of eight, joined by their counts", true,
      [](shardproof_candidate_table& t) {
        t.channel_variance = [](const shardproof_channel_variance* c) {
          return each_variance(c, [](Channel x, float own, float mean) {
            return second_moment_of(merged<8>(x), own, mean);
          });
        };
        t.contracts[SHARDPROOF_CHANNEL_VARIANCE].statistics = SHARDPROOF_STATISTICS_MERGED;
      });
  add("variance-shifted-by-the-first", "one pass over x − x₀", true,
      [](shardproof_candidate_table& t) {
        t.channel_variance = [](const shardproof_channel_variance* c) {
          return each_variance(c, [](Channel x, float own, float mean) {
            const float first = x(0), between = own - mean;
            const float shift =
                mean_of<kPlain>(x.size(), [&](std::size_t i) { return x(i) - first; });
            return std::max(second_moment<kPlain>(x, first) - shift * shift, 0.0F) +
                   between * between;
          });
        };
        t.contracts[SHARDPROOF_CHANNEL_VARIANCE].statistics = SHARDPROOF_STATISTICS_SHIFTED;
      });
  add("variance-about-the-replicas-mean-in-float64", "every operation in float64", false,
      [](shardproof_candidate_table& t) {
        t.channel_variance = [](const shardproof_channel_variance* c) {
          return each_variance(c, [](Channel x, float own, float mean) {
            double sum = 0;
            for (std::size_t i = 0; i < x.size(); ++i) {
              const double d = static_cast<double>(x(i)) - static_cast<double>(own);
              sum += d * d;
            }
            const double between = static_cast<double>(own) - static_cast<double>(mean);
            return static_cast<float>(sum / static_cast<double>(x.size()) + between * between);
          });
        };
      });
}

void add_pointwise(std::vector<Mutant>& controls) {
  const auto add = [&](const char* name, const char* what, bool needs_contract,
                       void (*fill)(shardproof_candidate_table&)) {
    controls.push_back({name, "", what, true, needs_contract, fill});
  };
  add("normalise-gamma-last", "((x − mean)·r)·γ + β", false, [](shardproof_candidate_table& t) {
    t.normalise = [](const shardproof_normalise* c) {
      return each_normalised(c,
                             [](Site s) { return ((s.x - s.mean) * s.root()) * s.gamma + s.beta; });
    };
  });
  add("normalise-fused", "the product with γ·r and the sum with β in one rounding", false,
      [](shardproof_candidate_table& t) {
        t.normalise = [](const shardproof_normalise* c) {
          return each_normalised(
              c, [](Site s) { return std::fma(s.x - s.mean, s.gamma * s.root(), s.beta); });
        };
      });
  add("normalise-divides", "γ·(x − mean)/√(variance + ε) + β", false,
      [](shardproof_candidate_table& t) {
        t.normalise = [](const shardproof_normalise* c) {
          return each_normalised(c, [](Site s) {
            return s.gamma * ((s.x - s.mean) / std::sqrt(s.variance + s.epsilon)) + s.beta;
          });
        };
        t.contracts[SHARDPROOF_NORMALISE].root = 3;
      });
  add("normalise-as-scale-and-shift", "x·scale + shift", true, [](shardproof_candidate_table& t) {
    t.normalise = [](const shardproof_normalise* c) {
      return each_normalised(c, [](Site s) {
        const float scale = s.gamma * s.root();
        return s.x * scale + (s.beta - s.mean * scale);
      });
    };
    t.contracts[SHARDPROOF_NORMALISE].form = SHARDPROOF_FORM_FUSED;
  });
  add("normalise-with-a-root-of-14-bits", "an approximate reciprocal root", true,
      [](shardproof_candidate_table& t) {
        t.normalise = [](const shardproof_normalise* c) {
          return each_normalised(c, [](Site s) {
            const auto bits = std::bit_cast<std::uint32_t>(s.root());
            const float root =
                std::isfinite(s.root()) ? std::bit_cast<float>(bits & 0xfffffc00U) : s.root();
            return (s.x - s.mean) * (s.gamma * root) + s.beta;
          });
        };
        t.contracts[SHARDPROOF_NORMALISE].root = 1026;
      });
  add("normalise-with-an-exact-root", "states that roots of powers of four are exact", false,
      [](shardproof_candidate_table& t) {
        t.normalise = [](const shardproof_normalise* c) {
          return each_normalised(c, [](Site s) { return s.y(); });
        };
        t.contracts[SHARDPROOF_NORMALISE].root = 1.5;
        t.contracts[SHARDPROOF_NORMALISE].root_exact_at_powers_of_four = SHARDPROOF_YES;
        t.contracts[SHARDPROOF_NORMALISE].contraction = SHARDPROOF_NO;
      });
  add("pointwise-flushed", "subnormal results of ReLU and add become zero", true,
      [](shardproof_candidate_table& t) {
        t.relu = [](const shardproof_unary* c) {
          return each_unary(
              c, [](const float* x, std::size_t i) { return x[i] < 0x1p-126F ? 0.0F : x[i]; });
        };
        t.add = [](const shardproof_add* c) {
          return each_sum(c, [](const float* a, const float* b, std::size_t i) {
            const float y = a[i] + b[i];
            return std::abs(y) < 0x1p-126F ? 0 : y;
          });
        };
        for (const int operation : {SHARDPROOF_RELU, SHARDPROOF_ADD}) {
          t.contracts[operation].subnormals_kept = SHARDPROOF_NO;
        }
      });
  add("pointwise-from-the-end", "ReLU and add, last element first", false,
      [](shardproof_candidate_table& t) {
        t.relu = [](const shardproof_unary* c) {
          for (std::size_t i = count(c->x); i-- > 0;) {
            values(c->y)[i] = plain::relu(values(c->x)[i]);
          }
          return 0;
        };
        t.add = [](const shardproof_add* c) {
          for (std::size_t i = count(c->y); i-- > 0;) {
            values(c->y)[i] = values(c->b)[i] + values(c->a)[i];
          }
          return 0;
        };
      });
}

void add_reductions(std::vector<Mutant>& controls) {
  const auto add = [&](const char* name, const char* what, bool needs_contract,
                       void (*fill)(shardproof_candidate_table&)) {
    controls.push_back({name, "", what, true, needs_contract, fill});
  };
  add("reduce-by-rank", "replicas added in their order", false, fill_reduce<kPlain>);
  add("reduce-from-the-last", "replicas added from the last", false,
      fill_reduce<Recipe{.order = Recipe::Order::backward}>);
  add("reduce-by-a-tree", "a tree over eight", false, fill_reduce<Recipe{.lanes = 8}>);
  add("reduce-compensated", "Kahan's summation over the replicas", false,
      fill_reduce<Recipe{.compensated = true}>);
  add("reduce-in-float64", "float64 sums over the replicas", false,
      fill_reduce<Recipe{.sum = Recipe::Sum::float64}>);
  add("reduce-by-the-reciprocal", "S·(1/R)", true,
      fill_reduce<Recipe{.mean = Recipe::Mean::reciprocal}>);
  add("reduce-premultiplied", "Σ x·(1/R), as ncclAvg", true,
      fill_reduce<Recipe{.mean = Recipe::Mean::premultiply}>);
  add("sum-from-the-last", "sums over the replicas from the last", false,
      [](shardproof_candidate_table& t) {
        t.all_reduce_sum = [](const shardproof_collective_call* c) {
          return each_reduced(c, [](std::size_t, const std::vector<float>& terms) {
            float total = 0;
            for (std::size_t r = terms.size(); r-- > 0;) total += terms[r];
            return total;
          });
        };
      });
  add("reduce-around-a-ring", "each part of the array is added from another replica on", false,
      [](shardproof_candidate_table& t) {
        t.all_reduce_mean = [](const shardproof_collective_call* c) {
          return each_reduced(c, [](std::size_t i, const std::vector<float>& terms) {
            float total = 0;
            for (std::size_t k = 0; k < terms.size(); ++k) {
              total += terms[(i + k) % terms.size()];
            }
            return total / static_cast<float>(terms.size());
          });
        };
      });
}

void add_sharded_steps(std::vector<Mutant>& controls) {
  const auto add = [&](const char* name, const char* what, bool needs_contract,
                       void (*fill)(shardproof_candidate_table&)) {
    controls.push_back({name, "", what, true, needs_contract, fill});
  };
  add("running-as-a-step", "r + momentum·(value − r)", false, [](shardproof_candidate_table& t) {
    t.running_statistics = [](const shardproof_running_statistics* c) {
      return each_running(c, [=](float old, float batch, float unbiased) {
        return old + c->momentum * (batch * unbiased - old);
      });
    };
  });
  add("scatter-by-rank", "replicas added in their order", false,
      [](shardproof_candidate_table& t) { t.reduce_scatter_mean = reduce_scatter_mean<kPlain>; });
  add("scatter-from-the-last", "replicas added from the last", false,
      [](shardproof_candidate_table& t) {
        t.reduce_scatter_mean = reduce_scatter_mean<Recipe{.order = Recipe::Order::backward}>;
      });
  add("scatter-premultiplied", "Σ x·(1/R), as ncclAvg", true, [](shardproof_candidate_table& t) {
    constexpr Recipe recipe{.mean = Recipe::Mean::premultiply};
    t.reduce_scatter_mean = reduce_scatter_mean<recipe>;
    t.contracts[SHARDPROOF_REDUCE_SCATTER_MEAN] = contract_of(recipe);
  });
  add("gather-in-order", "a copy", false, [](shardproof_candidate_table& t) {
    t.all_gather = [](const shardproof_collective_call* c) {
      return gather(
          c, [](std::size_t r) { return r; }, [](std::size_t i) { return i; });
    };
  });
  add("step-in-order", "every assignment as it stands", false, [](shardproof_candidate_table& t) {
    t.owned_step = [](const shardproof_owned_step* c) { return owned_step(c, apply); };
    t.contracts[SHARDPROOF_OWNED_STEP].contraction = SHARDPROOF_NO;
  });
  add("step-from-the-end", "the last coordinate first", false, [](shardproof_candidate_table& t) {
    t.owned_step = [](const shardproof_owned_step* c) {
      for (std::size_t i = c->count; i-- > 0;) step_coordinate(c, i, apply);
      return 0;
    };
    t.contracts[SHARDPROOF_OWNED_STEP].contraction = SHARDPROOF_NO;
  });
  add("step-that-fuses", "a product and the sum after it in one rounding", false,
      [](shardproof_candidate_table& t) {
        t.owned_step = [](const shardproof_owned_step* c) { return owned_step(c, Fused{}); };
      });
}

}  // namespace

void add_controls(std::vector<Mutant>& controls) {
  add_sums(controls);
  add_statistics(controls);
  add_pointwise(controls);
  add_reductions(controls);
  add_sharded_steps(controls);
}

}  // namespace shardproof
