// Two routes to one number: what a node means (denote, spec §4) over rationals, float64 with a
// radius and plain float64, and the fast tiles of products.h.
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "properties/draws.h"
#include "properties/random_cases.h"
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

  Product() {
    const auto kind = static_cast<ProductKind>(draw_size("kind", 0, 2));
    geometry.kind = kind;
    geometry.x = {draw_size("examples", 1, 3), draw_size("channels", 1, 5),
                  draw_size("height", 2, 7), draw_size("width", 2, 8)};
    const std::size_t out = draw_size("outputs", 1, 6);
    const NodeId input = graph.input("x", geometry.x);
    if (kind == ProductKind::dense) {
      graph.dense(input, {"w", "b"}, out);
    } else {
      geometry.kernel = 2 * draw_size("half kernel", 0, 2) + 1;
      geometry.stride = draw_size("stride", 1, 2);
      const std::size_t padding = (geometry.kernel - 1) / 2;
      const bool same_padding = geometry.stride == 2 && draw_size("SAME", 0, 1) == 1;
      geometry.pad_begin = same_padding && padding > 0 ? padding - 1 : padding;
      const std::size_t end = padding;
      if (kind == ProductKind::convolution) {
        graph.convolution(
            input, {"w", "", geometry.kernel, geometry.stride, geometry.pad_begin, end}, out);
      } else {
        graph.depthwise(input, {"w", geometry.kernel, geometry.stride, geometry.pad_begin, end});
      }
    }
    geometry.y = graph.node(graph.output()).shape;
    geometry.y.n = geometry.x.n;
    const std::uint64_t seed = draw_seed();
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

TEST_CASE("tiles, certified and float64 evaluation enclose what a product node means") {
  check_on_random_cases("two routes of a product", 400, [] {
    const Product product;
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
          RC_ASSERT(std::isfinite(radius));
          RC_ASSERT(contains(tile.value[from], radius, meaning.values[to]));
          RC_ASSERT(contains(rounded.values[to], radius, meaning.values[to]));
        }
      }
    };
    for_each_product_tile(product.geometry, product.x.values, product.weights.at("w").values,
                          ProductNeeds::magnitude, 1, check_tile);
    RC_ASSERT(seen == std::vector<int>(seen.size(), 1));
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const Certified& value = certified.values[i];
      RC_ASSERT(std::isfinite(value.radius));
      RC_ASSERT(contains(value.value, value.radius, meaning.values[i]));
    }
  });
}

// A chain of nodes of drawn kinds, ending in dense.
Graph drawn_network(Shape shape) {
  Graph graph;
  NodeId x = graph.input("x", shape);
  const std::size_t length = draw_size("nodes", 1, 6);
  for (std::size_t i = 0; i < length; ++i) {
    const std::string name = std::to_string(i);
    switch (draw_size("kind", 0, 4)) {
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

TEST_CASE("certified evaluation of a small network meets its enclosure at 80 digits") {
  check_on_random_cases("two routes of a network", 100, [] {
    const std::size_t replicas = draw_size("replicas", 1, 3);
    const Shape shape{2 * replicas, draw_size("channels", 1, 3), draw_size("height", 1, 6),
                      draw_size("width", 1, 5)};
    const Graph graph = drawn_network(shape);
    const std::uint64_t seed = draw_seed();
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
        RC_ASSERT(std::isfinite(value.radius));
        RC_ASSERT(narrow[r].values[i].width() < 1e-30);
        RC_ASSERT(
            meets(narrow[r].values[i], Real(value.value) + Real(-value.radius, value.radius)));
      }
    }
  });
}

}  // namespace
}  // namespace shardproof
