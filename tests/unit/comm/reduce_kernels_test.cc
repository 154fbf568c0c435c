#include "ddprun/worker/comm/kernels/reduce_kernels.h"

#include <cstdint>
#include <limits>

#include "ddprun/worker/comm/kernels/half.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

TEST_CASE("whole numbers wrap around") {
  std::vector<std::int32_t> a = {std::numeric_limits<std::int32_t>::max()}, b = {1};
  reduce(ReduceOp::sum, DType::int32, a.data(), a.data(), b.data(), 1);
  CHECK(a[0] == std::numeric_limits<std::int32_t>::min());
  std::vector<std::int8_t> c = {-100}, d = {-3};
  reduce(ReduceOp::product, DType::int8, c.data(), c.data(), d.data(), 1);
  CHECK(c[0] == static_cast<std::int8_t>(300));
}

TEST_CASE("the output may be a third buffer, and the operands stay") {
  const std::vector<float> left = {1, 5, -2}, right = {4, 2, -2};
  std::vector<float> output(3);
  reduce(ReduceOp::max, DType::float32, output.data(), left.data(), right.data(), 3);
  CHECK(output == std::vector<float>{4, 5, -2});
  reduce(ReduceOp::min, DType::float32, output.data(), left.data(), right.data(), 3);
  CHECK(output == std::vector<float>{1, 2, -2});
  CHECK(left == std::vector<float>{1, 5, -2});
}

TEST_CASE("16-bit floats are added in float32 and rounded once") {
  const std::uint16_t large = bfloat16_from_float(256.0f), small = bfloat16_from_float(1.0f);
  std::uint16_t sum = 0;
  reduce(ReduceOp::sum, DType::bfloat16, &sum, &large, &small, 1);
  CHECK(float_from_bfloat16(sum) == 256.0f);  // 257 needs 9 bits; ties to even
  const std::uint16_t three = float16_from_float(3.0f), half = float16_from_float(0.5f);
  reduce(ReduceOp::product, DType::float16, &sum, &three, &half, 1);
  CHECK(float_from_float16(sum) == 1.5f);
}

TEST_CASE("what is prepared is rounded when all are combined, and no sooner") {
  CHECK(prepared_type(DType::bfloat16) == DType::float32);
  CHECK(prepared_type(DType::float64) == DType::float64);
  // 129 * 129 = 16641 lies between two bfloat16, 128 apart.
  const std::uint16_t value = bfloat16_from_float(129.0f);
  float product = 0;
  prepare_reduction(129, {&value, 1, DType::bfloat16}, &product);
  CHECK(product == 16641.0f);
  std::uint16_t rounded = 0;
  finish_prepared(&product, {&rounded, 1, DType::bfloat16});
  CHECK(float_from_bfloat16(rounded) == 16640.0f);
}

TEST_CASE("an average divides by the number of ranks, other reductions do not") {
  std::vector<double> values = {9, 12};
  finish_reduction(ReduceOp::sum, span_of(values), 3);
  CHECK(values == std::vector<double>{9, 12});
  finish_reduction(ReduceOp::average, span_of(values), 3);
  CHECK(values == std::vector<double>{3, 4});
}

TEST_CASE("many inputs are combined in their order, and 16-bit floats rounded once in all") {
  // 256 + 1 + 1: rounding after each addition would lose both ones.
  const std::uint16_t large = bfloat16_from_float(256.0f), one = bfloat16_from_float(1.0f);
  std::uint16_t sum = 0;
  const std::vector<const void*> halves = {&large, &one, &one};
  reduce_all(ReduceOp::sum, DType::bfloat16, &sum, halves, 1);
  CHECK(float_from_bfloat16(sum) == 258.0f);

  constexpr std::size_t count = 2500;  // more than two blocks
  std::vector<float> a(count, 1), b(count, 2), c(count, 4);
  a.back() = b.back() = c.back() = 10;
  const std::vector<const void*> inputs = {a.data(), b.data(), c.data()};
  reduce_all(ReduceOp::sum, DType::float32, b.data(), inputs, count);  // the output is one of them
  CHECK(b.front() == 7);
  CHECK(b[2047] == 7);
  CHECK(b.back() == 30);
}
