// Two routes to one number: what a node means (denote, spec §4) over rationals, float64 with a
// radius and plain float64, and the fast tiles of products.h.
#include <array>
#include <string>

#include "properties/draws.h"
#include "properties/identities/identities.h"
#include "reference/graph/products.h"
#include "reference/numbers/certified.h"
#include "reference/numbers/interval.h"

namespace shardproof {
namespace {

Rational in_full(double x) { return from_double<Rational>(x); }

bool contains(double value, double radius, const Rational& number) {
  return abs(in_full(value) - number) <= in_full(radius);
}

// One product node of a drawn kind and shape.
struct Product {
  Graph graph;
  ProductGeometry geometry;
  Tensor<float> x;
  Weights weights;

  explicit Product(Draws& draws) {
    static constexpr std::array<std::string_view, 3> kinds = {"convolution", "depthwise", "dense"};
    static constexpr std::array<std::string_view, 2> paddings = {"symmetric", "SAME"};
    const auto kind = static_cast<ProductKind>(draws.kind("product", kinds));
    geometry.kind = kind;
    geometry.x = {draws.size("examples", 1, 3), draws.size("channels", 1, 5),
                  draws.size("height", 2, 7), draws.size("width", 2, 8)};
    const std::size_t out = draws.size("outputs", 1, 6);
    const NodeId input = graph.input("x", geometry.x);
    if (kind == ProductKind::dense) {
      graph.dense(input, {"w", "b"}, out);
    } else {
      geometry.kernel = 2 * draws.size("half kernel", 0, 2) + 1;
      geometry.stride = draws.size("stride", 1, 2);
      const std::size_t end = (geometry.kernel - 1) / 2;
      const bool same_padding = geometry.stride == 2 && draws.kind("padding", paddings) == 1;
      geometry.pad_begin = same_padding && end > 0 ? end - 1 : end;
      if (kind == ProductKind::convolution) {
        graph.convolution(
            input, {"w", "", geometry.kernel, geometry.stride, geometry.pad_begin, end}, out);
      } else {
        graph.depthwise(input, {"w", geometry.kernel, geometry.stride, geometry.pad_begin, end});
      }
    }
    geometry.y = graph.node(graph.output()).shape;
    geometry.y.n = geometry.x.n;
    const std::uint64_t seed = draws.seed();
    x = reals(geometry.x, Random(seed, "x"));
    weights = drawn_weights(graph, seed);
    // The tiles hold the product alone.
    if (kind == ProductKind::dense) weights["b"] = Tensor<float>(weights["b"].shape);
  }

  template <class T>
  Tensor<T> meaning() const {
    return denote_on_one_device(graph, weights, exact<T>(x));
  }
};

void of_a_product(Draws& draws, Trial&) {
  const Product product(draws);
  const Tensor<Rational> meaning = product.meaning<Rational>();
  const Tensor<Certified> certified = product.meaning<Certified>();
  const Tensor<double> rounded = product.meaning<double>();
  std::vector<int> seen(meaning.values.size());
  const auto check_tile = [&](const ProductTile& tile) {
    for (std::size_t c = 0; c < tile.channels; ++c) {
      for (std::size_t p = 0; p < tile.pixels; ++p) {
        const std::size_t from = c * tile.row_stride + p;
        const std::size_t to =
            meaning.index(tile.image, tile.first_channel + c, 0, 0) + tile.first_pixel + p;
        ++seen.at(to);
        const double radius =
            product_radius(product.geometry.terms()) * static_cast<double>(tile.magnitude[from]);
        claim(std::isfinite(radius), "a tile's radius is finite");
        claim(contains(tile.value[from], radius, meaning.values[to]),
              "a tile encloses the meaning");
        claim(contains(rounded.values[to], radius, meaning.values[to]),
              "float64 in the order of the formula lies within the tile's radius");
      }
    }
  };
  for_each_product_tile(product.geometry, product.x.values, product.weights.at("w").values,
                        ProductNeeds::magnitude, 1, check_tile);
  claim(seen == std::vector<int>(seen.size(), 1), "every number lies in one tile");
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const Certified& value = certified.values[i];
    claim(std::isfinite(value.radius), "a certified radius is finite");
    claim(contains(value.value, value.radius, meaning.values[i]),
          "certified evaluation encloses the meaning");
  }
}

// A chain of nodes of drawn kinds, ending in dense.
Graph drawn_network(Draws& draws, Shape shape) {
  static constexpr std::array<std::string_view, 5> kinds = {"relu", "convolution", "depthwise",
                                                            "BN", "residual"};
  Graph graph;
  NodeId x = graph.input("x", shape);
  const std::size_t length = draws.size("nodes", 1, 6);
  for (std::size_t i = 0; i < length; ++i) {
    const std::string name = std::to_string(i);
    switch (draws.kind("node", kinds)) {
      case 0:
        x = graph.relu(x, name);
        break;
      case 1:
        x = graph.convolution(x, {"w" + name, "b" + name, 3, 2, 1, 1}, i + 2);
        break;
      case 2:
        x = graph.depthwise(x, {"w" + name, 3, 1, 1, 1});
        break;
      case 3:
        x = graph.bn_sync_site(x, {"g" + name, "bt" + name, 0.25F});
        break;
      default:
        x = graph.add(x, graph.depthwise(x, {"w" + name, 5, 1, 2, 2}), name);
        break;
    }
  }
  x = graph.global_average_pool(x, "gap");
  graph.dense(x, {"W", "b"}, 3);
  return graph;
}

void of_a_network(Draws& draws, Trial&) {
  const std::size_t replicas = draws.size("replicas", 1, 3);
  const Shape shape{2 * replicas, draws.size("channels", 1, 3), draws.size("height", 1, 6),
                    draws.size("width", 1, 5)};
  const Graph graph = drawn_network(draws, shape);
  const std::uint64_t seed = draws.seed();
  const Weights weights = drawn_weights(graph, seed);
  const Tensor<float> x = reals(shape, Random(seed, "x"));
  const NodeId wanted = graph.output();
  using Real = Interval<80>;
  const auto narrow =
      denote<Real>(graph, weights, {shards_of(replicas, exact<Real>(x))}, {&wanted, 1}).front();
  const auto certified =
      denote<Certified>(graph, weights, {shards_of(replicas, exact<Certified>(x))}, {&wanted, 1})
          .front();
  for (std::size_t r = 0; r < replicas; ++r) {
    for (std::size_t i = 0; i < narrow[r].values.size(); ++i) {
      const Certified& value = certified[r].values[i];
      claim(std::isfinite(value.radius), "a certified radius is finite");
      claim(narrow[r].values[i].width() < 1e-30, "80 digits leave a narrow enclosure");
      claim(meets(narrow[r].values[i], Real(value.value) + Real(-value.radius, value.radius)),
            "certified evaluation meets the enclosure");
    }
  }
}

}  // namespace

Identity fast_products_agree_with_their_meaning() {
  return {.name = "fast-products-agree-with-their-meaning",
          .label = "two-routes",
          .statement = "Fast tiles, certified and float64 evaluation enclose what a node means.",
          .theorem = "",
          .properties = {{.name = "one product", .holds = of_a_product, .one_in = 2},
                         {.name = "a small network", .holds = of_a_network, .one_in = 2}}};
}

}  // namespace shardproof
