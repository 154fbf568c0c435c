// Layer, RMS and group normalization on an emulated device against plain loops in double.
#include <cmath>

#include "tests/support/numerics.h"
#include "tests/unit/cuda/device_tensor.h"

using namespace ddprun;
using namespace ddprun::test;
using kernels::Axis;

namespace {

constexpr double eps = 1e-3;

// Returns the allowed difference of a result to the exact one, as a share of the largest magnitude, at least 1:
// rounding of sums of up to some thousand terms, with 16 bits that of the result.
double bound_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-12;
    case DType::float32:
      return 1e-5;
    case DType::float16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

DType statistics_type(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

Tensor unwritten(const Shape& shape, DType dtype) {
  return Tensor::full(shape, NAN, dtype);
}

struct Case {
  Axis axis;  // rows of n channels of inner values
  std::int64_t groups_per_sample;
  bool centred, weighted, biased;
  DType dtype;
  std::int64_t parameters() const { return groups_per_sample * axis.n; }
};

struct Inputs {
  explicit Inputs(const Case& c)
      : x(random_tensor({c.axis.outer, c.axis.n, c.axis.inner}, 1)),
        grad(random_tensor(x.shape(), 2).to(c.dtype)),
        weight(c.weighted ? random_tensor({c.parameters()}, 3).to(c.dtype) : Tensor()),
        bias(c.biased ? random_tensor({c.parameters()}, 4).to(c.dtype) : Tensor()) {
    // This mean is not small beside the deviation.
    for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] += 3;
    x = x.to(c.dtype);
  }
  Tensor x, grad, weight, bias;
};

// The results in double, by definition.
struct Oracle {
  Oracle(const Case& c, const Inputs& in)
      : y(values(in.x).size()),
        mean(static_cast<std::size_t>(c.axis.outer)),
        inverse(mean.size()),
        x_grad(y.size()),
        weight_grad(static_cast<std::size_t>(c.parameters())),
        bias_grad(weight_grad.size()) {
    const std::vector<double> x = values(in.x), grad = values(in.grad);
    const std::vector<double> weight = c.weighted ? values(in.weight) : std::vector<double>(weight_grad.size(), 1);
    const std::vector<double> bias = c.biased ? values(in.bias) : std::vector<double>(weight_grad.size(), 0);
    const std::int64_t length = c.axis.n * c.axis.inner;
    const double n = static_cast<double>(length);
    for (std::int64_t row = 0; row < c.axis.outer; ++row) {
      const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(row * length + i); };
      const auto parameter = [&](std::int64_t i) {
        return static_cast<std::size_t>((row % c.groups_per_sample) * c.axis.n + i / c.axis.inner);
      };
      double total = 0, squares = 0;
      for (std::int64_t i = 0; i < length; ++i) total += x[at(i)];
      const double m = c.centred ? total / n : 0;
      for (std::int64_t i = 0; i < length; ++i) squares += (x[at(i)] - m) * (x[at(i)] - m);
      const double inv = 1 / std::sqrt(squares / n + eps);
      mean[static_cast<std::size_t>(row)] = m;
      inverse[static_cast<std::size_t>(row)] = inv;
      double of_g = 0, of_product = 0;
      for (std::int64_t i = 0; i < length; ++i) {
        const double h = (x[at(i)] - m) * inv, g = grad[at(i)] * weight[parameter(i)];
        y[at(i)] = h * weight[parameter(i)] + bias[parameter(i)];
        of_g += g / n;
        of_product += g * h / n;
        weight_grad[parameter(i)] += grad[at(i)] * h;
        bias_grad[parameter(i)] += grad[at(i)];
      }
      for (std::int64_t i = 0; i < length; ++i) {
        const double h = (x[at(i)] - m) * inv, g = grad[at(i)] * weight[parameter(i)];
        x_grad[at(i)] = inv * (g - (c.centred ? of_g : 0) - h * of_product);
      }
    }
  }
  std::vector<double> y, mean, inverse, x_grad, weight_grad, bias_grad;
};

// An operand, or none.
struct Operand {
  Operand(const Tensor& tensor, std::int64_t shift = 0)
      : memory(tensor.defined() ? tensor : Tensor::zeros({}), shift),
        view(tensor.defined() ? memory.view() : left_out) {}
  DeviceTensor memory;
  cuda::View view;
};

struct Forward {
  Tensor y, mean, inverse;
};
Forward forward(const Case& c, const Inputs& in, std::int64_t shift = 0) {
  const DType wide = statistics_type(c.dtype);
  const DeviceTensor x(in.x, shift), y(unwritten(in.x.shape(), c.dtype), shift);
  const Operand weight(in.weight), bias(in.bias, shift);
  const Operand mean(c.centred ? unwritten({c.axis.outer}, wide) : Tensor());
  const DeviceTensor inverse(unwritten({c.axis.outer}, wide));
  check(device_api().group_norm(test_device(), x.view(), c.axis, c.centred, eps, weight.view, bias.view, mean.view,
                                inverse.view(), y.view()));
  return {y.read(), c.centred ? mean.memory.read() : Tensor(), inverse.read()};
}

struct Gradients {
  Tensor x, weight, bias;
};
Gradients backward(const Case& c, const Inputs& in, const Oracle& oracle, std::int64_t shift = 0) {
  const DType wide = statistics_type(c.dtype);
  const DeviceTensor x(in.x, shift), grad(in.grad), x_grad(unwritten(in.x.shape(), c.dtype));
  const DeviceTensor inverse(Tensor::from(oracle.inverse, {c.axis.outer}).to(wide));
  const Operand mean(c.centred ? Tensor::from(oracle.mean, {c.axis.outer}).to(wide) : Tensor());
  const Operand weight(in.weight, shift), weight_grad(c.weighted ? unwritten(in.weight.shape(), c.dtype) : Tensor());
  const Operand bias_grad(c.biased ? unwritten({c.parameters()}, c.dtype) : Tensor());
  check(device_api().group_norm_backward(test_device(), x.view(), grad.view(), c.axis, c.centred, mean.view,
                                         inverse.view(), weight.view, x_grad.view(), weight_grad.view, bias_grad.view));
  return {x_grad.read(), c.weighted ? weight_grad.memory.read() : Tensor(),
          c.biased ? bias_grad.memory.read() : Tensor()};
}

template <class Visit>
void for_each_case(Visit visit) {
  struct Sizes {
    Axis axis;
    std::int64_t groups_per_sample;
  };
  // The sizes have rows of a warp and of a block, in shared memory or too long for it, whole vectors or not; one value
  // a channel and several; more samples than a segment has.
  const std::vector<Sizes> all{{{1, 1, 1}, 1},    {{9, 8, 1}, 1},     {{40, 33, 1}, 1},  {{5, 1024, 1}, 1},
                               {{3, 1025, 1}, 1}, {{2, 13000, 1}, 1}, {{1100, 5, 1}, 1}, {{1030, 64, 1}, 1},
                               {{12, 6, 1}, 3},   {{8, 3, 16}, 2},    {{8, 4, 49}, 4},   {{4, 8, 400}, 2},
                               {{2, 2, 9000}, 1}, {{600, 2, 2}, 2},   {{2, 12, 1100}, 2}};
  for (const DType dtype : floating_types) {
    for (const auto& [axis, groups] : all) {
      for (const Case& c : {Case{axis, groups, true, true, true, dtype}, Case{axis, groups, false, true, false, dtype},
                            Case{axis, groups, true, false, false, dtype}}) {
        INFO(name_of(dtype) << ", " << axis.outer << " rows of " << axis.n << " x " << axis.inner << ", " << groups
                            << " a sample" << (c.centred ? ", centred" : "") << (c.weighted ? ", weight" : "")
                            << (c.biased ? ", bias" : ""));
        visit(c);
      }
    }
  }
}

}  // namespace

TEST_CASE("rows are normalized as by definition") {
  for_each_case([](const Case& c) {
    const Inputs in(c);
    const Oracle expected(c, in);
    for (const std::int64_t shift : {0, 1}) {
      const Forward result = forward(c, in, shift);
      const double bound = bound_of(c.dtype), of_statistics = bound_of(statistics_type(c.dtype));
      CHECK(difference(values(result.y), expected.y) <= bound);
      CHECK(difference(values(result.inverse), expected.inverse) <= of_statistics);
      if (c.centred) CHECK(difference(values(result.mean), expected.mean) <= of_statistics);
    }
  });
}

TEST_CASE("the gradients of normalized rows are those of the definition") {
  for_each_case([](const Case& c) {
    const Inputs in(c);
    const Oracle expected(c, in);
    for (const std::int64_t shift : {0, 1}) {
      const Gradients result = backward(c, in, expected, shift);
      // In a row of one value the terms of its gradient cancel.
      CHECK(difference(values(result.x), expected.x_grad, c.axis.n * c.axis.inner == 1 ? 1 : 0) <= bound_of(c.dtype));
      if (c.weighted) CHECK(difference(values(result.weight), expected.weight_grad) <= bound_of(c.dtype));
      if (c.biased) CHECK(difference(values(result.bias), expected.bias_grad) <= bound_of(c.dtype));
    }
  });
}

TEST_CASE("a bias alone moves rows, and has a gradient alone") {
  const Case c{{6, 10, 1}, 2, true, false, true, DType::float32};
  const Inputs in(c);
  const Oracle expected(c, in);
  CHECK(difference(values(forward(c, in).y), expected.y) <= bound_of(c.dtype));
  CHECK(difference(values(backward(c, in, expected).bias), expected.bias_grad) <= bound_of(c.dtype));
}

TEST_CASE("more tiles of parameters than a grid has blocks") {
  const Case c{{3, 32 * 4100 + 1, 1}, 1, true, true, true, DType::float32};
  const Inputs in(c);
  const Oracle expected(c, in);
  const Gradients result = backward(c, in, expected);
  CHECK(difference(values(result.weight), expected.weight_grad) <= bound_of(c.dtype));
  CHECK(difference(values(result.bias), expected.bias_grad) <= bound_of(c.dtype));
}

TEST_CASE("no rows have gradients of 0") {
  for (const DType dtype : floating_types) {
    const Case c{{0, 10, 1}, 1, true, true, true, dtype};
    const Inputs in(c);
    const Oracle expected(c, in);
    CHECK(forward(c, in).y.numel() == 0);
    const Gradients result = backward(c, in, expected);
    CHECK(values(result.weight) == std::vector<double>(10, 0));
    CHECK(values(result.bias) == std::vector<double>(10, 0));
  }
}

TEST_CASE("normalization gives the same bits however memory is aligned, and again") {
  for_each_case([](const Case& c) {
    const Inputs in(c);
    const Oracle oracle(c, in);
    const Forward first = forward(c, in), again = forward(c, in, 1);
    CHECK(same_values(first.y, again.y));
    CHECK(same_values(first.inverse, again.inverse));
    const Gradients gradients = backward(c, in, oracle), others = backward(c, in, oracle, 1);
    CHECK(same_values(gradients.x, others.x));
    if (c.weighted) CHECK(same_values(gradients.weight, others.weight));
    if (c.biased) CHECK(same_values(gradients.bias, others.bias));
  });
}

TEST_CASE("the gradients of normalized rows are finite differences") {
  for (const auto& [axis, groups] : {std::pair{Axis{3, 5, 1}, std::int64_t{1}}, {Axis{4, 2, 3}, std::int64_t{2}}}) {
    const Case c{axis, groups, true, true, true, DType::float64};
    Inputs in(c);
    const std::vector<double> grad = values(in.grad);
    const auto loss = [&] {
      const std::vector<double> y = values(forward(c, in).y);
      double total = 0;
      for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * grad[i];
      return total;
    };
    const Gradients result = backward(c, in, Oracle(c, in));
    const auto check_operand = [&](Tensor& operand, const Tensor& gradient) {
      std::vector<double> estimate;
      for (std::int64_t i = 0; i < operand.numel(); ++i) {
        constexpr double step = 1e-5;
        double& element = operand.data<double>()[i];
        const double kept = element;
        element = kept + step;
        const double above = loss();
        element = kept - step;
        const double below = loss();
        element = kept;
        estimate.push_back((above - below) / (2 * step));
      }
      CHECK(difference(estimate, values(gradient)) < 1e-8);
    };
    check_operand(in.x, result.x);
    check_operand(in.weight, result.weight);
    check_operand(in.bias, result.bias);
  }
}

// --- rows with results of 16 bits, and their gradients in one pass

namespace {

struct RowCase {
  std::int64_t rows, n;
  bool centred, weighted, biased;
  DType dtype, grad;  // types of x and of the result
};

template <class Visit>
void for_each_row_case(Visit visit) {
  // The sizes have fewer rows than a tile has, a segment and more, several segments; whole packs or not, more columns
  // than a block has threads.
  for (const auto& [rows, n] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {5, 8}, {64, 33}, {65, 12}, {200, 40}, {9, 1100}}) {
    for (const DType dtype : floating_types) {
      std::vector<DType> grads{dtype};
      if (dtype == DType::float32) grads = {DType::float32, DType::bfloat16, DType::float16};
      for (const DType grad : grads) {
        for (const RowCase& c :
             {RowCase{rows, n, true, true, true, dtype, grad}, RowCase{rows, n, false, true, false, dtype, grad},
              RowCase{rows, n, true, false, false, dtype, grad}}) {
          INFO(rows << " rows of " << n << ", " << name_of(dtype) << ", gradient in " << name_of(grad)
                    << (c.centred ? ", centred" : "") << (c.weighted ? ", weight" : "") << (c.biased ? ", bias" : ""));
          visit(c);
        }
      }
    }
  }
}

Case as_case(const RowCase& c) {
  return {{c.rows, c.n, 1}, 1, c.centred, c.weighted, c.biased, c.dtype};
}

struct RowGradients {
  Tensor x, copy, weight, bias;
};
// Earlier values are added: the addend to x and, if the case says so, the parameters' gradients.
RowGradients row_backward(const RowCase& c, const Inputs& in, const Oracle& oracle, const Tensor& before,
                          bool accumulate, std::int64_t shift = 0) {
  const DType wide = statistics_type(c.dtype);
  const bool has_copy = c.grad != c.dtype;
  const DeviceTensor x(in.x, shift), grad(in.grad, shift), x_grad(unwritten(in.x.shape(), c.dtype));
  const Operand addend(before, shift), copy(has_copy ? unwritten(in.x.shape(), c.grad) : Tensor(), shift);
  const DeviceTensor inverse(Tensor::from(oracle.inverse, {c.rows}).to(wide));
  const Operand mean(c.centred ? Tensor::from(oracle.mean, {c.rows}).to(wide) : Tensor()), weight(in.weight);
  const auto parameter = [&](bool wanted) {
    return !wanted ? Tensor() : accumulate ? Tensor::full({c.n}, 0.5, c.dtype) : unwritten({c.n}, c.dtype);
  };
  const Operand weight_grad(parameter(c.weighted)), bias_grad(parameter(c.biased));
  check(device_api().row_norm_backward(test_device(), x.view(), grad.view(), addend.view, {c.rows, c.n, 1}, c.centred,
                                       mean.view, inverse.view(), weight.view, x_grad.view(), copy.view,
                                       weight_grad.view, accumulate, bias_grad.view, accumulate));
  return {x_grad.read(), has_copy ? copy.memory.read() : Tensor(), c.weighted ? weight_grad.memory.read() : Tensor(),
          c.biased ? bias_grad.memory.read() : Tensor()};
}

Inputs row_inputs(const RowCase& c) {
  Inputs in(as_case(c));
  in.grad = in.grad.to(c.grad);
  return in;
}

}  // namespace

TEST_CASE("rows of float32 are normalized into 16 bits, rounded once") {
  for (const DType out : {DType::bfloat16, DType::float16}) {
    for (const std::int64_t n : {5, 64, 1100}) {
      const Case c{{9, n, 1}, 1, true, true, true, DType::float32};
      const Inputs in(c);
      const DeviceTensor x(in.x), weight(in.weight), bias(in.bias), mean(Tensor::zeros({9})),
          inverse(Tensor::zeros({9}));
      for (const std::int64_t shift : {0, 1}) {
        const DeviceTensor y(unwritten(in.x.shape(), out), shift);
        check(device_api().group_norm(test_device(), x.view(), c.axis, true, eps, weight.view(), bias.view(),
                                      mean.view(), inverse.view(), y.view()));
        CHECK(same_values(y.read(), forward(c, in).y.to(out)));
      }
    }
  }
}

TEST_CASE("one pass gives the gradients of rows with what is added to them, and those of weight and bias") {
  for_each_row_case([](const RowCase& c) {
    const Inputs in = row_inputs(c);
    const Oracle expected(as_case(c), in);
    const Tensor before = random_tensor(in.x.shape(), 9).to(c.dtype);
    for (const bool accumulate : {false, true}) {
      const RowGradients found = row_backward(c, in, expected, before, accumulate);
      std::vector<double> x = expected.x_grad, weight = expected.weight_grad, bias = expected.bias_grad;
      const auto added = values(before);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += added[i];
      for (std::size_t i = 0; accumulate && i < weight.size(); ++i) weight[i] += 0.5, bias[i] += 0.5;
      CHECK(difference(values(found.x), x) <= bound_of(c.dtype));
      if (found.copy.defined()) CHECK(same_values(found.copy, found.x.to(c.grad)));
      if (c.weighted) CHECK(difference(values(found.weight), weight) <= bound_of(c.dtype));
      if (c.biased) CHECK(difference(values(found.bias), bias) <= bound_of(c.dtype));
    }
  });
}

TEST_CASE("gradients of rows in one pass have the same bits however memory is aligned, and again") {
  for_each_row_case([](const RowCase& c) {
    const Inputs in = row_inputs(c);
    const Oracle expected(as_case(c), in);
    const RowGradients first = row_backward(c, in, expected, {}, false),
                       again = row_backward(c, in, expected, {}, false, 1);
    CHECK(same_values(first.x, again.x));
    if (c.weighted) CHECK(same_values(first.weight, again.weight));
    if (c.biased) CHECK(same_values(first.bias, again.bias));
  });
}

TEST_CASE("no rows in one pass have gradients of 0") {
  const RowCase c{0, 10, true, true, true, DType::float32, DType::bfloat16};
  const Inputs in = row_inputs(c);
  const RowGradients found = row_backward(c, in, Oracle(as_case(c), in), {}, false);
  CHECK(values(found.weight) == std::vector<double>(10, 0));
  CHECK(values(found.bias) == std::vector<double>(10, 0));
}
