#include "worker/parallel/sharding/dimension_shards.h"

#include <numeric>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::sharding;

namespace {

Tensor numbers(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(numel(shape)));
  std::iota(values.begin(), values.end(), 0.0F);
  return Tensor::from(values, shape);
}

std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
}

}  // namespace

TEST_CASE("a rank's shard of a dimension") {
  const Tensor rows = local_shard(numbers({4, 3}), {.axis = "tensor", .dimension = 0}, 1, 2);
  CHECK(rows.shape() == Shape{2, 3});
  CHECK(values_of(rows) == std::vector<float>{6, 7, 8, 9, 10, 11});
  const Tensor columns = local_shard(numbers({2, 4}), {.axis = "tensor", .dimension = 1}, 0, 2);
  CHECK(columns.shape() == Shape{2, 2});
  CHECK(values_of(columns) == std::vector<float>{0, 1, 4, 5});
  CHECK(whole_shape(columns.shape(), {.axis = "tensor", .dimension = 1}, 2) == Shape{2, 4});
}

TEST_CASE("a rank has its part of each piece") {
  CHECK(values_of(local_shard(numbers({12}), {.axis = "tensor", .dimension = 0, .pieces = 3}, 0, 2)) ==
        std::vector<float>{0, 1, 4, 5, 8, 9});
  CHECK(values_of(local_shard(numbers({12}), {.axis = "tensor", .dimension = 0, .pieces = 3}, 1, 2)) ==
        std::vector<float>{2, 3, 6, 7, 10, 11});
}

TEST_CASE("the parts of all ranks make the whole again") {
  for (const auto& [dimension, pieces] : std::vector<std::pair<std::size_t, int>>{{0, 1}, {1, 1}, {1, 3}, {2, 2}}) {
    const sharding::Shard shard{.axis = "tensor", .dimension = dimension, .pieces = pieces};
    for (const int ranks : {1, 2, 4}) {
      const Tensor whole = numbers({4, 12, 8});
      Tensor again = Tensor::zeros(whole.shape());
      for (int rank = 0; rank < ranks; ++rank)
        put_local_shard(local_shard(whole, shard, rank, ranks), shard, rank, ranks, again);
      CHECK(values_of(again) == values_of(whole));
    }
  }
}
