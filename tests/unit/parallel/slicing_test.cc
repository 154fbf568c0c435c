#include "worker/parallel/slicing.h"

#include <numeric>

#include "tests/support/catch.h"

using namespace ddprun;

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

TEST_CASE("a rank's part of a dimension") {
  const Tensor rows = part_of(numbers({4, 3}), {.dim = 0}, 1, 2);
  CHECK(rows.shape() == Shape{2, 3});
  CHECK(values_of(rows) == std::vector<float>{6, 7, 8, 9, 10, 11});
  const Tensor columns = part_of(numbers({2, 4}), {.dim = 1}, 0, 2);
  CHECK(columns.shape() == Shape{2, 2});
  CHECK(values_of(columns) == std::vector<float>{0, 1, 4, 5});
  CHECK(whole_shape(columns.shape(), {.dim = 1}, 2) == Shape{2, 4});
}

TEST_CASE("a rank has its part of each piece") {
  CHECK(values_of(part_of(numbers({12}), {.dim = 0, .pieces = 3}, 0, 2)) == std::vector<float>{0, 1, 4, 5, 8, 9});
  CHECK(values_of(part_of(numbers({12}), {.dim = 0, .pieces = 3}, 1, 2)) == std::vector<float>{2, 3, 6, 7, 10, 11});
}

TEST_CASE("the parts of all ranks make the whole again") {
  for (const Slicing& slicing : {Slicing{0, 1}, Slicing{1, 1}, Slicing{1, 3}, Slicing{2, 2}}) {
    for (const int ranks : {1, 2, 4}) {
      const Tensor whole = numbers({4, 12, 8});
      Tensor again = Tensor::zeros(whole.shape());
      for (int rank = 0; rank < ranks; ++rank)
        put_part(part_of(whole, slicing, rank, ranks), slicing, rank, ranks, again);
      CHECK(values_of(again) == values_of(whole));
    }
  }
}
