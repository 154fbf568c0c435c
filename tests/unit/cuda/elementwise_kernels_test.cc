// Functions of elements, copies and dropout on an emulated device give the CPU's bits: there is nothing to add up.
#include <memory>
#include <vector>

#include "worker/tensor/kernels.h"
#include "tests/support/numerics.h"
#include "tests/unit/cuda/device_tensor.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

const kernels::Arguments arguments{.a = 0.7, .b = 1.3, .c = -3, .d = 2};

const kernels::Table& cpu() {
  return kernels::table({});
}

// The extents are 0, 1, less than a pack, more than a warp, more than a block has in a pass; aligned and not.
struct Extent {
  std::int64_t count, shift;
};
const std::vector<Extent> extents{{0, 0}, {1, 0}, {3, 1}, {67, 0}, {67, 1}, {2500, 0}, {2500, 3}};

Tensor random_of(const Shape& shape, std::uint64_t seed, DType dtype) {
  const Tensor wide = random_tensor(shape, seed);
  if (is_floating(dtype)) return wide.to(dtype);
  return kernels::scale(wide, 20).to(DType::int32).to(dtype == DType::uint8 ? DType::int8 : dtype).to(dtype);
}

// Pairs of operands of one shape in several layouts.
struct Operands {
  const char* name;
  Tensor a, b;
};
std::vector<Operands> layouts(DType dtype) {
  const Tensor cube = random_of({6, 5, 14}, 1, dtype), other = random_of({6, 5, 14}, 2, dtype);
  const Tensor matrix = random_of({33, 40}, 3, dtype);
  return {{"dense", cube, other},
          {"row", matrix, random_of({40}, 4, dtype).expand({33, 40})},
          {"column", matrix, random_of({33, 1}, 5, dtype).expand({33, 40})},
          {"one element", matrix, random_of({}, 6, dtype).expand({33, 40})},
          {"middle", cube, random_of({6, 1, 14}, 7, dtype).expand({6, 5, 14})},
          {"transposed", matrix.transpose(0, 1), random_of({40, 33}, 8, dtype)},
          {"sliced", cube.slice(2, 3, 7), other.slice(2, 1, 7)},
          {"permuted", cube.permute({2, 0, 1}), random_of({14, 6, 5}, 9, dtype)},
          {"scalars", random_of({}, 10, dtype), random_of({}, 11, dtype)},
          {"empty", random_of({0, 4}, 12, dtype), random_of({0, 4}, 13, dtype)}};
}

template <class Function>
void check_unary(Function function, const char* name) {
  INFO(name);
  for (const DType dtype : floating_types) {
    for (const Extent& extent : extents) {
      INFO(name_of(dtype) << ", " << extent.count << " from " << extent.shift);
      const Tensor x = random_of({extent.count}, 1, dtype), grad = random_of({extent.count}, 2, dtype);
      Tensor expected = Tensor::empty_like(x);
      const DeviceTensor on_x(x, extent.shift), on_grad(grad, extent.shift), out(expected, extent.shift);
      cpu().unary(function, arguments, x, expected);
      check(device_api().unary(test_device(), function, arguments, on_x.view(), out.view()));
      CHECK(same_results(out.read(), expected));
      cpu().unary_gradient(function, arguments, x, grad, expected);
      check(device_api().unary_gradient(test_device(), function, arguments, on_x.view(), on_grad.view(), out.view()));
      CHECK(same_results(out.read(), expected));
    }
  }
}

void check_binary(kernels::Binary function, const char* name) {
  INFO(name);
  for (const DType dtype : floating_types) {
    for (const Operands& operands : layouts(dtype)) {
      INFO(name_of(dtype) << ", " << operands.name);
      Tensor expected = Tensor::empty(operands.a.shape(), dtype);
      const Tensor grad = random_of(operands.a.shape(), 20, dtype);
      const DeviceTensor a(operands.a), b(operands.b, 1), on_grad(grad), out(expected);
      cpu().binary(function, arguments, operands.a, operands.b, expected);
      check(device_api().binary(test_device(), function, arguments, a.view(), b.view(), out.view()));
      CHECK(same_results(out.read(), expected));
      for (const int operand : {0, 1}) {
        cpu().binary_gradient(function, arguments, operand, operands.a, operands.b, grad, expected);
        check(device_api().binary_gradient(test_device(), function, arguments, operand, a.view(), b.view(),
                                           on_grad.view(), out.view()));
        CHECK(same_results(out.read(), expected));
      }
    }
  }
}

}  // namespace

TEST_CASE("every unary function and its gradient give the CPU's bits") {
#define DDPRUN_ROW(name, functor_) check_unary(kernels::Unary::name, #name);
  DDPRUN_UNARY_FUNCTORS(DDPRUN_ROW)
#undef DDPRUN_ROW
}

TEST_CASE("a function that saves nothing needs no saved operand") {
  const Tensor grad = random_tensor({9}, 1);
  const DeviceTensor on_grad(grad), out(grad);
  check(device_api().unary_gradient(test_device(), kernels::Unary::scale, {.a = 3}, left_out, on_grad.view(),
                                    out.view()));
  CHECK(same_values(out.read(), kernels::scale(grad, 3)));
}

TEST_CASE("gradients of all 16-bit elements round as the CPU's tables have them") {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    Tensor x = Tensor::empty({65536}, dtype), expected = Tensor::empty_like(x);
    for (std::int64_t bits = 0; bits < x.numel(); ++bits)
      static_cast<std::uint16_t*>(x.raw())[bits] = static_cast<std::uint16_t>(bits);
    const Tensor grad = random_tensor({65536}, 2).to(dtype);
    const DeviceTensor on_x(x), on_grad(grad), out(x);
    for (const kernels::Unary function : {kernels::Unary::silu, kernels::Unary::gelu, kernels::Unary::gelu_tanh}) {
      cpu().unary_gradient(function, {}, x, grad, expected);
      check(device_api().unary_gradient(test_device(), function, {}, on_x.view(), on_grad.view(), out.view()));
      CHECK(same_values(out.read(), expected));
    }
  }
}

TEST_CASE("every binary function and its gradients give the CPU's bits in every layout") {
#define DDPRUN_ROW(name, functor_) check_binary(kernels::Binary::name, #name);
  DDPRUN_BINARY_FUNCTORS(DDPRUN_ROW)
#undef DDPRUN_ROW
}

TEST_CASE("a sum may be written over its operand") {
  const Tensor a = random_tensor({100003}, 1), b = random_tensor({100003}, 2);
  const DeviceTensor on_a(a), on_b(b);
  check(device_api().binary(test_device(), kernels::Binary::add, {}, on_a.view(), on_b.view(), on_a.view()));
  CHECK(same_values(on_a.read(), kernels::add(a, b)));
}

TEST_CASE("comparisons and selections give the CPU's results for every type and layout") {
  for (const DType dtype : all_types) {
    for (const Operands& operands : layouts(dtype)) {
      INFO(name_of(dtype) << ", " << operands.name);
      const Shape& shape = operands.a.shape();
      const DeviceTensor a(operands.a, 1), b(operands.b);
      Tensor expected = Tensor::empty(shape, DType::uint8);
      const DeviceTensor out(expected);
#define DDPRUN_ROW(name, operation)                                                                      \
  cpu().compare(kernels::Comparison::name, operands.a, operands.b, expected);                            \
  check(device_api().compare(test_device(), kernels::Comparison::name, a.view(), b.view(), out.view())); \
  CHECK(same_values(out.read(), expected));
      DDPRUN_COMPARISONS(DDPRUN_ROW)
#undef DDPRUN_ROW
      const Tensor chosen = expected;
      const DeviceTensor on_chosen(chosen);
      Tensor selected = Tensor::empty(shape, dtype);
      const DeviceTensor on_selected(selected);
      cpu().where(chosen, operands.a, operands.b, selected);
      check(device_api().where(test_device(), on_chosen.view(), a.view(), b.view(), on_selected.view()));
      CHECK(same_values(on_selected.read(), selected));
    }
  }
}

TEST_CASE("a NaN equals nothing, itself included") {
  const Tensor x = Tensor::from(std::vector<float>{NAN, 1, NAN}, {3}),
               y = Tensor::from(std::vector<float>{NAN, NAN, 2}, {3});
  Tensor expected = Tensor::empty({3}, DType::uint8);
  const DeviceTensor on_x(x), on_y(y), out(expected);
  check(device_api().compare(test_device(), kernels::Comparison::not_equal, on_x.view(), on_y.view(), out.view()));
  CHECK(same_values(out.read(), Tensor::from(std::vector<std::uint8_t>{1, 1, 1}, {3})));
}

TEST_CASE("copies convert any type into any other, between any layouts") {
  for (const DType from : all_types) {
    for (const DType to : all_types) {
      const Tensor x = random_of({12, 5, 7}, 1, from);
      const Tensor signless = to == DType::uint8 && is_floating(from) ? kernels::unary(kernels::Unary::abs, x) : x;
      struct Case {
        const char* name;
        Tensor source, target;
      };
      const Tensor target = Tensor::zeros({12, 5, 7}, to);
      const Tensor flat = Tensor::zeros({420}, to);
      for (const Case& one : std::vector<Case>{
               {"dense", signless, target},
               {"flat", signless, flat},
               {"transposed", signless.permute({2, 1, 0}), Tensor::zeros({7, 5, 12}, to)},
               {"transposed to flat", signless.permute({2, 1, 0}), flat},
               {"into transposed", signless, target.permute({1, 2, 0}).permute({2, 0, 1})},
               {"flat into transposed", signless.reshape({420}), Tensor::zeros({7, 12, 5}, to).permute({1, 2, 0})},
               {"both transposed, of other shapes", signless.permute({2, 1, 0}),
                Tensor::zeros({60, 7}, to).transpose(0, 1)},
               {"repeated", signless.slice(0, 3, 1).expand({4, 5, 7}), Tensor::zeros({4, 5, 7}, to)},
               {"empty", signless.slice(0, 0, 0), Tensor::zeros({0, 3}, to)}}) {
        INFO(name_of(from) << " to " << name_of(to) << ", " << one.name);
        Tensor expected = one.target;
        const DeviceTensor source(one.source), result(expected, 1);
        cpu().copy(one.source.contiguous(), expected);
        check(device_api().copy(test_device(), source.view(), result.view()));
        CHECK(same_values(result.read(), expected));
      }
    }
  }
}

TEST_CASE("copies that transpose give the CPU's elements in tiles of any size") {
  for (const DType dtype : all_types) {
    for (const Shape& shape : {Shape{16, 16}, Shape{33, 70}, Shape{64, 32}, Shape{15, 40}, Shape{100, 130}}) {
      const Tensor x = random_of({2, 3, shape[0], shape[1]}, 1, dtype);
      for (const Tensor& from : {x.permute({0, 1, 3, 2}), x.permute({1, 3, 0, 2}), x.permute({3, 1, 0, 2}),
                                 x.slice(3, 1, shape[1] - 1).permute({1, 0, 3, 2})}) {
        INFO(name_of(dtype) << ", " << to_string(from.shape()) << " of " << to_string(from.strides()));
        Tensor expected = Tensor::zeros(from.shape(), dtype);
        const DeviceTensor source(from), result(expected, 1);
        cpu().copy(from, expected);
        check(device_api().copy(test_device(), source.view(), result.view()));
        CHECK(same_values(result.read(), expected));
      }
    }
  }
}

TEST_CASE("an int64 is copied exactly") {
  const Tensor x = Tensor::from(std::vector<std::int64_t>{(std::int64_t{1} << 62) + 1, -7, 3, 4}, {2, 2});
  const Tensor target = Tensor::zeros({4}, DType::int64);
  const DeviceTensor source(x.transpose(0, 1)), result(target);
  check(device_api().copy(test_device(), source.view(), result.view()));
  CHECK(same_values(result.read(), x.transpose(0, 1).contiguous().reshape({4})));
}

TEST_CASE("fill writes every type and layout, and nothing beside it") {
  for (const DType dtype : all_types) {
    for (const std::int64_t shift : {0, 1}) {
      Tensor dense = Tensor::zeros({1031}, dtype);
      const DeviceTensor on_dense(dense, shift);
      dense.fill(3);
      check(device_api().fill(test_device(), on_dense.view(), 3));
      CHECK(same_values(on_dense.read(), dense));
    }
    Tensor columns = Tensor::zeros({9, 8}, dtype).slice(1, 2, 3);
    const DeviceTensor on_columns(columns);
    cpu().fill(columns, 5);
    check(device_api().fill(test_device(), on_columns.view(), 5));
    CHECK(same_values(on_columns.read(), columns));
  }
}

TEST_CASE("dropout drops what the CPU drops") {
  struct Case {
    std::int64_t rows, count;
    std::uint64_t first;
    double probability;
  };
  for (const DType dtype : floating_types) {
    for (const Case& one : std::vector<Case>{{1, 1001, 0, 0.3},
                                             {1, 4096, 0, 0.5},
                                             {3, 37, 5, 0.1},
                                             {300, 8, 2, 0.25},
                                             {2, 64, 7, 0},
                                             {2, 64, 3, 1},
                                             {4, 0, 0, 0.5},
                                             {0, 5, 0, 0.5}}) {
      for (const std::int64_t shift : {0, 1}) {
        INFO(name_of(dtype) << ", " << one.rows << " rows of " << one.count << " from " << one.first);
        const Tensor x = random_of({one.rows, one.count}, 1, dtype);
        std::vector<std::uint64_t> streams;
        for (std::int64_t row = 0; row < one.rows; ++row) streams.push_back(std::uint64_t{1} << 40 | (row * 7919));
        Tensor expected = Tensor::empty_like(x);
        cpu().dropout(x, one.probability, 12345, streams, one.first, expected);
        const DeviceTensor both(x, shift);
        check(device_api().dropout(test_device(), both.view(), one.probability, 12345, streams.data(), one.rows,
                                   one.first, both.view()));
        CHECK(same_values(both.read(), expected));
      }
    }
  }
}

TEST_CASE("arithmetic on integers is refused with operation, type and device") {
  const DeviceTensor x(Tensor::zeros({4}, DType::int32));
  CHECK_THROWS_WITH(check(device_api().unary(test_device(), kernels::Unary::relu, {}, x.view(), x.view())),
                    "unary of int32 tensors is not supported on cuda:0");
}

TEST_CASE("many tensors are cast to 16 bits by one launch, with the bits of single casts") {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    // The tensors are more than a launch has, of no elements, one, and more than a piece of a block.
    for (const std::int64_t tensors : {1, 5, 300}) {
      INFO(name_of(dtype) << ", " << tensors << " tensors");
      std::vector<std::unique_ptr<DeviceTensor>> from, to;
      std::vector<cuda::View> sources, targets;
      std::vector<Tensor> expected;
      for (std::int64_t i = 0; i < tensors; ++i) {
        const std::int64_t count = tensors > 5 ? i % 7 : i == 3 ? 9001 : i * 17;
        const Tensor values = random_tensor({count}, static_cast<std::uint64_t>(i) + 1);
        expected.push_back(values.to(dtype));
        from.push_back(std::make_unique<DeviceTensor>(values, i % 3));
        to.push_back(std::make_unique<DeviceTensor>(Tensor::zeros({count}, dtype), i % 2));
        sources.push_back(from.back()->view());
        targets.push_back(to.back()->view());
      }
      const std::uint64_t before = device_api().launches(test_device());
      check(device_api().cast_all(test_device(), sources.data(), targets.data(), tensors));
      CHECK(device_api().launches(test_device()) - before <= (tensors > 5 ? 3U : 1U));
      for (std::size_t i = 0; i < expected.size(); ++i) CHECK(same_values(to[i]->read(), expected[i]));
    }
  }
}
