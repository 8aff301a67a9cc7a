// P3 (spec §2). Lean: batchShard_batchMap, batchShard_batchMapAux, batchShard_map,
// batchShard_zipWith, batchShard_castIdx.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "properties/draws.h"
#include "properties/identities/identities.h"
#include "properties/unit_cases.h"

namespace shardproof {
namespace {

// An arbitrary number of any type: here a word that mixes everything it is given, in order.
using Word = std::uint64_t;
Word mixed(Word seed, std::span<const Word> words) {
  for (const Word word : words) seed = Random(seed + word).next();
  return seed;
}
Tensor<Word> words(Shape shape, Random random) {
  Tensor<Word> x(shape);
  for (Word& value : x.values) value = random.next();
  return x;
}

std::span<const Word> example(const Tensor<Word>& x, std::size_t n) {
  return std::span(x.values).subspan(n * x.shape.example(), x.shape.example());
}

// The lift of a map on one example to a batch; f gives numbers of shape `out`.
template <class F>
Tensor<Word> batch_map(const Tensor<Word>& x, Shape out, F f) {
  out.n = x.shape.n;
  Tensor<Word> y(out);
  for (std::size_t n = 0; n < out.n; ++n) {
    for (std::size_t i = 0; i < out.example(); ++i) {
      y.values[n * out.example() + i] = f(example(x, n), i);
    }
  }
  return y;
}
template <class F>
Tensor<Word> batch_map_aux(const Tensor<Word>& x, const Tensor<Word>& aux, Shape out, F f) {
  out.n = x.shape.n;
  Tensor<Word> y(out);
  for (std::size_t n = 0; n < out.n; ++n) {
    for (std::size_t i = 0; i < out.example(); ++i) {
      y.values[n * out.example() + i] = f(example(x, n), example(aux, n), i);
    }
  }
  return y;
}

constexpr Shape kLargest{4, 8, 9, 8};

void inverse(Draws& draws, Trial&) {
  const DrawnBatch drawn = draw_batch(draws, kLargest);
  const Tensor<Word> batch = words(drawn.shape, Random(draws.seed()));
  const Family<Word> shards = shards_of(drawn.replicas, batch);
  claim(same(unshard(shards), batch), "unshard puts the shards of a batch back");
  claim(is_sharded(shards, unshard(shards)), "batch_shard takes what was put together apart");
  // Shard r is examples r·N … r·N + N − 1.
  bool contiguous = true;
  for (std::size_t n = 0; n < drawn.shape.n; ++n) {
    const auto own = example(shards[n / drawn.examples], n % drawn.examples);
    const auto of_batch = example(batch, n);
    contiguous = contiguous && std::equal(own.begin(), own.end(), of_batch.begin());
  }
  claim(contiguous, "a shard is a contiguous block of examples");
}

void map_of_an_example(Draws& draws, Trial&) {
  const DrawnBatch drawn = draw_batch(draws, kLargest);
  const Shape out{1, draws.size("outputs", 1, 9), 1, 1};
  const std::uint64_t seed = draws.seed();
  const auto f = [&](std::span<const Word> one, std::size_t i) { return mixed(seed + i, one); };
  const Tensor<Word> batch = words(drawn.shape, Random(seed));
  Family<Word> shards = shards_of(drawn.replicas, batch);
  for (Tensor<Word>& shard : shards) shard = batch_map(shard, out, f);
  claim(is_sharded(shards, batch_map(batch, out, f)), "a map of one example commutes");
}

void map_with_an_operand(Draws& draws, Trial&) {
  const DrawnBatch drawn = draw_batch(draws, kLargest);
  const Shape out{1, draws.size("outputs", 1, 9), 1, 1};
  const Shape aux_shape{drawn.shape.n, draws.size("auxiliary numbers", 1, 5), 1, 1};
  const std::uint64_t seed = draws.seed();
  const auto f = [&](std::span<const Word> one, std::span<const Word> aux, std::size_t i) {
    return mixed(mixed(seed + i, one), aux);
  };
  const Tensor<Word> batch = words(drawn.shape, Random(seed, "x"));
  const Tensor<Word> aux = words(aux_shape, Random(seed, "aux"));
  Family<Word> shards = shards_of(drawn.replicas, batch);
  for (std::size_t r = 0; r < drawn.replicas; ++r) {
    shards[r] = batch_map_aux(shards[r], batch_shard(drawn.replicas, aux, r), out, f);
  }
  claim(is_sharded(shards, batch_map_aux(batch, aux, out, f)),
        "a map with an operand of each example commutes");
}

void pointwise(Draws& draws, Trial&) {
  const DrawnBatch drawn = draw_batch(draws, kLargest);
  const std::uint64_t seed = draws.seed();
  const auto map = [&](Tensor<Word> x) {
    for (Word& value : x.values) value = mixed(seed, std::array{value});
    return x;
  };
  const auto zip_with = [&](Tensor<Word> x, const Tensor<Word>& y) {
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = mixed(seed, std::array{x.values[i], y.values[i]});
    }
    return x;
  };
  const Tensor<Word> x = words(drawn.shape, Random(seed, "x"));
  const Tensor<Word> y = words(drawn.shape, Random(seed, "y"));
  Family<Word> mapped = shards_of(drawn.replicas, x), zipped = mapped;
  for (std::size_t r = 0; r < drawn.replicas; ++r) {
    mapped[r] = map(std::move(mapped[r]));
    zipped[r] = zip_with(std::move(zipped[r]), batch_shard(drawn.replicas, y, r));
  }
  claim(is_sharded(mapped, map(x)), "a pointwise map of one operand commutes");
  claim(is_sharded(zipped, zip_with(x, y)), "a pointwise map of two operands commutes");
}

void relabelling(Draws& draws, Trial&) {
  static constexpr std::array<std::string_view, 2> kinds = {"as they are", "permuted"};
  const DrawnBatch drawn = draw_batch(draws, kLargest);
  const bool is_permuted = draws.kind("places", kinds) == 1;
  const std::uint64_t seed = draws.seed();
  std::vector<std::size_t> places(drawn.shape.example());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  if (is_permuted) Random(seed, "places").shuffle(std::span(places));
  // C×H×W under the name W·H×C×1; unpermuted, the same numbers in the same order.
  const Shape out{1, drawn.shape.plane(), drawn.shape.c, 1};
  const auto f = [&](std::span<const Word> one, std::size_t i) { return one[places[i]]; };
  const Tensor<Word> batch = words(drawn.shape, Random(seed));
  Family<Word> shards = shards_of(drawn.replicas, batch);
  for (Tensor<Word>& shard : shards) shard = batch_map(shard, out, f);
  claim(is_sharded(shards, batch_map(batch, out, f)), "a relabelling commutes");
}

// The nodes of spec §4 that are lifts of a map of one example.
constexpr std::array<std::string_view, 14> kNodes = {"relu",
                                                     "add",
                                                     "global average pool",
                                                     "dense",
                                                     "convolution 1x1",
                                                     "convolution 3x3",
                                                     "convolution 3x3 at stride 2",
                                                     "convolution 3x3 at stride 2, SAME",
                                                     "convolution 5x5",
                                                     "depthwise 3x3",
                                                     "depthwise 3x3 at stride 2",
                                                     "depthwise 3x3 at stride 2, SAME",
                                                     "depthwise 5x5",
                                                     "depthwise 5x5 at stride 2"};

void append(Graph& graph, std::size_t kind, NodeId x, NodeId y) {
  const auto convolution = [&](std::size_t kernel, std::size_t stride, std::size_t begin) {
    graph.convolution(x, {"w", "b", kernel, stride, begin, (kernel - 1) / 2}, 3);
  };
  const auto depthwise = [&](std::size_t kernel, std::size_t stride, std::size_t begin) {
    graph.depthwise(x, {"w", kernel, stride, begin, (kernel - 1) / 2});
  };
  switch (kind) {
    case 0:
      graph.relu(x, "relu");
      break;
    case 1:
      graph.add(x, y, "add");
      break;
    case 2:
      graph.global_average_pool(x, "gap");
      break;
    case 3:
      graph.dense(x, {"w", "b"}, 5);
      break;
    case 4:
      return convolution(1, 1, 0);
    case 5:
      return convolution(3, 1, 1);
    case 6:
      return convolution(3, 2, 1);
    case 7:
      return convolution(3, 2, 0);
    case 8:
      return convolution(5, 1, 2);
    case 9:
      return depthwise(3, 1, 1);
    case 10:
      return depthwise(3, 2, 1);
    case 11:
      return depthwise(3, 2, 0);
    case 12:
      return depthwise(5, 1, 2);
    default:
      return depthwise(5, 2, 2);
  }
}

// A node on R replicas, and on as many replicas as there are examples, against the node on the
// whole batch. `numbers` is a function of a shape and a stream.
template <class T>
void check_node(Draws& draws, Shape largest, Tensor<T> (*numbers)(Shape, Random)) {
  const std::size_t kind = draws.kind("node", kNodes);
  DrawnBatch drawn = draw_batch(draws, largest);
  drawn.shape.h += drawn.shape.h % 2;  // SAME padding is (0, 1) at even sizes
  drawn.shape.w += drawn.shape.w % 2;
  const std::uint64_t seed = draws.seed();
  Graph graph;
  const NodeId of_x = graph.input("x", drawn.shape);
  append(graph, kind, of_x, graph.input("y", drawn.shape));
  const Weights weights = drawn_weights(graph, seed);
  const Tensor<T> x = numbers(drawn.shape, Random(seed, "x"));
  const Tensor<T> y = numbers(drawn.shape, Random(seed, "y"));
  const auto on = [&](std::size_t replicas) {
    const NodeId wanted = graph.output();
    return std::move(
        denote<T>(graph, weights, {shards_of(replicas, x), shards_of(replicas, y)}, {&wanted, 1})
            .front());
  };
  const Tensor<T> batch = on(1).front();
  claim(batch.shape.n == drawn.shape.n, "a node has as many examples as its operands");
  claim(is_sharded(on(drawn.replicas), batch), "a node commutes");
  claim(is_sharded(on(drawn.shape.n), batch), "and on single examples");
}

void nodes_over_float32(Draws& draws, Trial&) {
  check_node<float>(draws, {4, 4, 5, 6}, any_floats);
}
void nodes_exactly(Draws& draws, Trial&) { check_node<Rational>(draws, {2, 3, 4, 4}, fractions); }

// Every replica's node against that replica's shard.
void on_the_device(Draws& draws, Trial& trial) {
  static constexpr std::array operations = {UnitOperation::relu,
                                            UnitOperation::add,
                                            UnitOperation::global_average_pool,
                                            UnitOperation::dense,
                                            UnitOperation::convolution_1x1,
                                            UnitOperation::convolution_3x3,
                                            UnitOperation::convolution_3x3_strided,
                                            UnitOperation::convolution_3x3_same,
                                            UnitOperation::convolution_5x5,
                                            UnitOperation::depthwise_3x3,
                                            UnitOperation::depthwise_3x3_strided,
                                            UnitOperation::depthwise_3x3_same,
                                            UnitOperation::depthwise_5x5,
                                            UnitOperation::depthwise_5x5_strided};
  claim_unit_agrees(draw_unit_case(draws, operations), trial);
}

}  // namespace

Identity batch_shard_commutes_with_per_example_maps() {
  return {
      .name = "batch-shard-commutes-with-per-example-maps",
      .label = "P3",
      .statement = "Sharding a batch commutes with the lift of any map of one example.",
      .theorem =
          "batchShard_batchMap, batchShard_batchMapAux, batchShard_map, "
          "batchShard_zipWith, batchShard_castIdx",
      .properties = {
          {.name = "unshard is the inverse", .holds = inverse},
          {.name = "any map of an example", .holds = map_of_an_example},
          {.name = "any map with an operand of each example", .holds = map_with_an_operand},
          {.name = "any pointwise map of one operand and of two", .holds = pointwise},
          {.name = "any relabelling within an example", .holds = relabelling},
          {.name = "nodes, bit for bit over float32", .holds = nodes_over_float32},
          {.name = "nodes, exactly", .holds = nodes_exactly, .one_in = 16},
          {.name = "nodes on the device", .form = Property::Form::device, .holds = on_the_device}}};
}

}  // namespace shardproof
