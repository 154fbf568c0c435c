#include "worker/comm/reduce/reduce_kernels.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include "common/float16.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

constexpr DType floats[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};
constexpr DType whole_numbers[] = {DType::int8, DType::uint8, DType::int32, DType::int64};

std::vector<std::byte> element(DType dtype, double value) {
  std::vector<std::byte> bytes(size_of(dtype));
  const auto store = [&](auto typed) { std::memcpy(bytes.data(), &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::float32:
      store(static_cast<float>(value));
      break;
    case DType::float64:
      store(value);
      break;
    case DType::float16:
      store(float16_from_float(static_cast<float>(value)));
      break;
    case DType::bfloat16:
      store(bfloat16_from_float(static_cast<float>(value)));
      break;
    case DType::int8:
      store(static_cast<std::int8_t>(value));
      break;
    case DType::uint8:
      store(static_cast<std::uint8_t>(value));
      break;
    case DType::int32:
      store(static_cast<std::int32_t>(value));
      break;
    case DType::int64:
      store(static_cast<std::int64_t>(value));
      break;
  }
  return bytes;
}

void check_reduction(DType dtype, ReduceOp op, double left, double right, double result) {
  INFO(ddprun::name_of(dtype) << ", operation " << static_cast<int>(op));
  // The count is enough for several vectors at a time, one vector at a time, and single elements.
  constexpr std::size_t count = 85;
  const auto elements = [&](double value) {
    std::vector<std::byte> all;
    for (std::size_t i = 0; i < count; ++i)
      for (const auto each : element(dtype, value)) all.push_back(each);
    return all;
  };
  const auto a = elements(left), b = elements(right);
  std::vector<std::byte> output(a.size());
  comm::reduce(op, dtype, output.data(), a.data(), b.data(), count);
  CHECK(output == elements(result));
}

}  // namespace

// The comparison is with constants: the contract tests only compare back ends, which all use these kernels.
TEST_CASE("every reduction of every type computes what its name says") {
  for (const auto dtype : floats) {
    check_reduction(dtype, ReduceOp::sum, 1.5, -2, -0.5);
    check_reduction(dtype, ReduceOp::average, 1.5, -2, -0.5);  // finish_reduction() divides
    check_reduction(dtype, ReduceOp::premultiplied_sum, 1.5, -2, -0.5);
    check_reduction(dtype, ReduceOp::product, 1.5, -2, -3);
    check_reduction(dtype, ReduceOp::min, 1.5, -2, -2);
    check_reduction(dtype, ReduceOp::max, 1.5, -2, 1.5);
  }
  for (const auto dtype : whole_numbers) {
    check_reduction(dtype, ReduceOp::sum, 12, 10, 22);
    check_reduction(dtype, ReduceOp::product, 12, 10, 120);
    check_reduction(dtype, ReduceOp::bit_and, 12, 10, 8);
    check_reduction(dtype, ReduceOp::bit_or, 12, 10, 14);
    check_reduction(dtype, ReduceOp::bit_xor, 12, 10, 6);
    const bool has_sign = dtype != DType::uint8;
    const double extreme = has_sign ? -100 : 200;
    check_reduction(dtype, ReduceOp::min, extreme, 5, has_sign ? extreme : 5);
    check_reduction(dtype, ReduceOp::max, extreme, 5, has_sign ? 5 : extreme);
  }
}

TEST_CASE("an average is divided and a premultiplied sum multiplied, in every kind of float") {
  for (const auto dtype : floats) {
    INFO(ddprun::name_of(dtype));
    auto value = element(dtype, 10.5);
    finish_reduction(ReduceOp::average, {value.data(), 1, dtype}, 3);
    CHECK(value == element(dtype, 3.5));
    std::vector<std::byte> prepared(size_of(prepared_type(dtype)));
    prepare_reduction(2.5, {value.data(), 1, dtype}, prepared.data());
    CHECK(prepared == element(prepared_type(dtype), 8.75));
    finish_prepared(prepared.data(), {value.data(), 1, dtype});
    CHECK(value == element(dtype, 8.75));
  }
}

TEST_CASE("integers wrap around") {
  std::vector<std::int32_t> a = {std::numeric_limits<std::int32_t>::max()}, b = {1};
  reduce(ReduceOp::sum, DType::int32, a.data(), a.data(), b.data(), 1);
  CHECK(a[0] == std::numeric_limits<std::int32_t>::min());
  std::vector<std::int8_t> c = {-100}, d = {-3};
  reduce(ReduceOp::product, DType::int8, c.data(), c.data(), d.data(), 1);
  CHECK(c[0] == static_cast<std::int8_t>(300));
}

TEST_CASE("the output may be a third buffer, and the operands do not change") {
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

TEST_CASE("prepared values are rounded after all are combined, not before") {
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

TEST_CASE("many inputs are combined in order, and 16-bit floats are rounded once") {
  // 256 + 1 + 1: rounding after each addition would lose both ones.
  const std::uint16_t large = bfloat16_from_float(256.0f), one = bfloat16_from_float(1.0f);
  std::uint16_t sum = 0;
  const std::vector<const void*> halves = {&large, &one, &one};
  void* const to_sum = &sum;
  reduce_all(ReduceOp::sum, DType::bfloat16, {&to_sum, 1}, halves, 1);
  CHECK(float_from_bfloat16(sum) == 258.0f);

  constexpr std::size_t count = 2500;
  std::vector<float> a(count, 1), b(count, 2), c(count, 4);
  a.back() = b.back() = c.back() = 10;
  const std::vector<const void*> inputs = {a.data(), b.data(), c.data()};
  void* const to_b = b.data();  // one of them
  reduce_all(ReduceOp::sum, DType::float32, {&to_b, 1}, inputs, count);
  CHECK(b.front() == 7);
  CHECK(b[2047] == 7);
  CHECK(b.back() == 30);
}
