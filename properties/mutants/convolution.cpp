// Convolutions, plain and depthwise, that are wrong.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;
using Call = shardproof_convolution;
using Operation = int (*)(const Call*);

constexpr Recipe kPlain;

// Taps as they are, but at another place of the image.
template <class Row, class Column>
Product product_at(const Correlation& g, const Place& p, const Tap& t, Row row, Column column) {
  return {g.at(p.n, g.channel(p.k, t.c), row, column), g.filter(p.k, t.c, t.a, t.b)};
}

int with_pads(const Call* call, std::uint64_t begin) {
  Call other = *call;
  other.pad_begin = begin;
  return correlate<kPlain>(&other, product);
}

// What can go wrong in both kinds.
template <class Add>
void add_to_either(const Add& add) {
  add("filter-flipped", "", "a convolution in place of a cross-correlation", [](const Call* c) {
    return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
      return Product{product(g, p, t).first,
                     g.filter(p.k, t.c, g.kernel - 1 - t.a, g.kernel - 1 - t.b)};
    });
  });
  add("filter-transposed", "", "rows and columns of the filter are exchanged", [](const Call* c) {
    return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
      return Product{product(g, p, t).first, g.filter(p.k, t.c, t.b, t.a)};
    });
  });
  add("pad-at-the-start", "vtjeng/MIPVerify.jl#23",
      "the odd pad of SAME at stride 2 stands at the start",
      [](const Call* c) { return with_pads(c, c->pad_end); });
  add("pad-symmetric-always", "microsoft/onnxruntime#27375",
      "begin and end pads are taken to be (k − 1)/2",
      [](const Call* c) { return with_pads(c, (extent(c->weight, 2) - 1) / 2); });
  add("edges-repeated", "", "pixels outside are those at the edge, not 0", [](const Call* c) {
    return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
      const auto inside = [](std::ptrdiff_t at, std::size_t size) {
        return std::clamp<std::ptrdiff_t>(at, 0, static_cast<std::ptrdiff_t>(size) - 1);
      };
      return product_at(g, p, t, inside(g.tap(p.i, t.a), g.height),
                        inside(g.tap(p.j, t.b), g.width));
    });
  });
  add("row-ends-run-on", "", "columns outside are read from the rows beside", [](const Call* c) {
    return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
      const std::ptrdiff_t place =
          g.tap(p.i, t.a) * static_cast<std::ptrdiff_t>(g.width) + g.tap(p.j, t.b);
      if (place < 0 || place >= static_cast<std::ptrdiff_t>(g.height * g.width)) {
        return Product{0.0F, g.filter(p.k, t.c, t.a, t.b)};
      }
      const auto width = static_cast<std::ptrdiff_t>(g.width);
      return product_at(g, p, t, place / width, place % width);
    });
  });
  add("inner-taps-never-added", "Tencent/ncnn#315", "only the outer taps of the filter count",
      [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
          const bool inner = t.a > 0 && t.b > 0 && t.a + 1 < g.kernel && t.b + 1 < g.kernel;
          return inner ? Product{0.0F, 0.0F} : product(g, p, t);
        });
      });
  add("images-share-a-buffer", "FluxML/NNlib.jl#197",
      "odd images are computed from the columns of the image before", [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, Place p, const Tap& t) {
          if (t.a == 0 && p.n % 2 == 1) --p.n;
          return product(g, p, t);
        });
      });
  add("strided-filter-read-as-dense", "pytorch/pytorch#1246",
      "filters are read at half their stride", [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
          const std::size_t place =
              ((p.k * g.in_channels() + t.c) * g.kernel + t.a) * g.kernel + t.b;
          return Product{product(g, p, t).first, g.weight[place / 2]};
        });
      });
  add("last-column-not-computed", "", "the last column of an odd width stays 0", [](const Call* c) {
    const std::size_t width = extent(c->y, 3);
    return correlate<kPlain>(c, [=](const Correlation& g, const Place& p, const Tap& t) {
      return width % 2 == 1 && p.j + 1 == width ? Product{0.0F, 0.0F} : product(g, p, t);
    });
  });
  add("images-past-a-grid-limit-skipped", "SandAI-org/MagiAttention#40",
      "no launch for more than three images, unnoticed",
      [](const Call* c) { return extent(c->x, 0) > 3 ? 0 : correlate<kPlain>(c, product); });
  add("operands-in-tf32", "pytorch/pytorch#107514", "operands are rounded to tf32, unsaid",
      convolution<Recipe{.operands = Recipe::Operands::tf32}>);
  add("operands-in-bfloat16", "", "operands are rounded to bfloat16, unsaid",
      convolution<Recipe{.operands = Recipe::Operands::bfloat16}>);
  add("operands-in-float16", "", "operands are rounded to float16, unsaid",
      convolution<Recipe{.operands = Recipe::Operands::float16}>);
  add("sums-in-float16", "", "the running sum is float16, unsaid",
      convolution<Recipe{.sum = Recipe::Sum::float16}>);
  add("stored-in-bfloat16", "", "the output goes through bfloat16", [](const Call* c) {
    const int status = correlate<kPlain>(c, product);
    for (std::size_t i = 0; i < count(c->y); ++i) values(c->y)[i] = to_bfloat16(values(c->y)[i]);
    return status;
  });
}

}  // namespace

void add_convolution_mutants(std::vector<Mutant>& mutants) {
  const auto add = [&](const std::string& name, const char* report, const char* what,
                       Operation operation) {
    mutants.push_back({"convolution-" + name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.convolution = operation; }});
  };
  add_to_either(add);
  add("bias-of-the-next-output", "", "output k gets the bias of k + 1", [](const Call* c) {
    Call without = *c;
    without.bias.data = nullptr;
    const int status = correlate<kPlain>(&without, product);
    const std::size_t outputs = extent(c->y, 1), plane = extent(c->y, 2) * extent(c->y, 3);
    for (std::size_t i = 0; c->bias.data != nullptr && i < count(c->y); ++i) {
      values(c->y)[i] += values(c->bias)[(i / plane + 1) % outputs];
    }
    return status;
  });
  add("last-writer-wins", "tinygrad/tinygrad#93",
      "input channels overwrite each other's products in place of adding them", [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
          return t.c + 1 == g.channels ? product(g, p, t) : Product{0.0F, 0.0F};
        });
      });
  add("input-and-output-channels-exchanged", "deeplearning4j/deeplearning4j#8405",
      "weights are read as [C, K, k, k]", [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
          const std::size_t place = ((t.c * g.outputs + p.k) * g.kernel + t.a) * g.kernel + t.b;
          return Product{product(g, p, t).first, g.weight[place]};
        });
      });
  add("image-read-channels-last", "pytorch/executorch#21837", "an image in NCHW is read as NHWC",
      [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
          const std::ptrdiff_t row = g.tap(p.i, t.a), column = g.tap(p.j, t.b);
          const auto height = static_cast<std::ptrdiff_t>(g.height);
          const auto width = static_cast<std::ptrdiff_t>(g.width);
          if (row < 0 || column < 0 || row >= height || column >= width) return product(g, p, t);
          const std::size_t place = ((p.n * g.height + static_cast<std::size_t>(row)) * g.width +
                                     static_cast<std::size_t>(column)) *
                                        g.channels +
                                    t.c;
          return Product{g.x[place], g.filter(p.k, t.c, t.a, t.b)};
        });
      });
  add("tail-of-channels-lost", "tgale96/grouped_gemm#36",
      "input channels past the last whole tile of four are not added", [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
          const bool lost = g.channels > 4 && t.c >= g.channels / 4 * 4;
          return lost ? Product{0.0F, 0.0F} : product(g, p, t);
        });
      });
  add("outputs-written-at-another-stride", "ROCm/composable_kernel#2478",
      "output channels 1 and 2 change places where there are more than two", [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, Place p, const Tap& t) {
          if (g.outputs > 2 && (p.k == 1 || p.k == 2)) p.k = 3 - p.k;
          return product(g, p, t);
        });
      });
  add("tail-tile-adds-old-output", "robertknight/rten#81",
      "the last of more than one output channel starts from what stood there", [](const Call* c) {
        const std::size_t outputs = extent(c->y, 1);
        const std::size_t plane = extent(c->y, 2) * extent(c->y, 3);
        const std::vector<float> before(values(c->y), values(c->y) + count(c->y));
        const int status = correlate<kPlain>(c, product);
        for (std::size_t i = 0; i < before.size(); ++i) {
          if (outputs > 1 && i / plane % outputs + 1 == outputs) values(c->y)[i] += 0 * before[i];
        }
        return status;
      });
}

void add_depthwise_mutants(std::vector<Mutant>& mutants) {
  const auto add = [&](const std::string& name, const char* report, const char* what,
                       Operation operation) {
    mutants.push_back({"depthwise-" + name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.depthwise = operation; }});
  };
  add_to_either(add);
  add("output-range-ignores-the-stride", "robertknight/rten#336",
      "columns that the pad cuts off are counted without the stride", [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
          const bool cut = g.stride > 1 && p.j > 0 && p.j < g.pad && t.b < g.pad;
          return cut ? Product{0.0F, 0.0F} : product(g, p, t);
        });
      });
  add("one-filter-for-all", "", "every channel gets the filter of channel 0", [](const Call* c) {
    return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
      return Product{product(g, p, t).first, g.filter(0, t.c, t.a, t.b)};
    });
  });
  add("group-is-channel-mod-groups", "pytorch/pytorch#51430",
      "the filter of channel c is that of c mod 4", [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
          return Product{product(g, p, t).first, g.filter(p.k % 4, t.c, t.a, t.b)};
        });
      });
  add("filters-channels-last", "deeplearning4j/deeplearning4j#8405",
      "weights are read as [k, k, C]", [](const Call* c) {
        return correlate<kPlain>(c, [](const Correlation& g, const Place& p, const Tap& t) {
          return Product{product(g, p, t).first,
                         g.weight[(t.a * g.kernel + t.b) * g.channels + p.k]};
        });
      });
}

}  // namespace shardproof
