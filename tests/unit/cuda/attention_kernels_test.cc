// Attention on an emulated device against plain loops in double.
#include <array>
#include <cmath>

#include "common/error.h"
#include "tests/support/numerics.h"
#include "tests/unit/cuda/attention_oracle.h"
#include "tests/unit/cuda/device_tensor.h"

using namespace ddprun;
using namespace ddprun::test;
using kernels::AttentionOptions;

namespace {

// Returns the allowed difference of a result to the exact one, as a share of the largest magnitude, at least 1. It
// allows for the rounding of scores, exponentials and sums of up to 130 terms; with 16 bits for the rounding of
// probabilities, score gradients and results, each half a unit in the last place of numbers up to a few times as large.
double bound_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-13;
    case DType::float32:
      return 5e-6;
    case DType::float16:
      return 0x1p-9;
    default:
      return 0x1p-6;
  }
}

// Returns what difference() returns, where equal infinities are equal.
double error_of(const Tensor& result, const Tensor& expected) {
  std::vector<double> a = values(result), b = values(expected);
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] == b[i] && std::isinf(a[i])) a[i] = b[i] = 0;
  return difference(a, b);
}

DType sums_type(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

// Returns a tensor of the device without a value, which shows elements that are not written.
Tensor unwritten(const Tensor& like, DType dtype) {
  Tensor result = Tensor::full(like.shape(), NAN, dtype);
  return result;
}

struct Extent {
  std::int64_t batch, heads, queries, keys, width, value_width;
};

// Heads lie beside each other in a row, as a projection makes them.
Tensor random_heads(const Extent& extent, std::int64_t rows, std::int64_t width, std::uint64_t seed, DType dtype) {
  return random_tensor({extent.batch, rows, extent.heads, width}, seed).to(dtype).transpose(1, 2);
}

// Returns a mask with some pairs hidden, all of the second query's, and a number added to the rest.
Tensor random_mask(std::int64_t queries, std::int64_t keys, DType dtype) {
  Tensor mask = random_tensor({queries, keys}, 9);
  for (std::int64_t i = 0; i < mask.numel(); ++i)
    if (i % 7 == 3 || i / keys == 1) mask.data<float>()[i] = -INFINITY;
  return mask.to(dtype);
}

AttentionInputs random_inputs(const Extent& extent, DType dtype, bool causal, bool masked) {
  return {.query = random_heads(extent, extent.queries, extent.width, 1, dtype),
          .key = random_heads(extent, extent.keys, extent.width, 2, dtype),
          .value = random_heads(extent, extent.keys, extent.value_width, 3, dtype),
          .mask = masked ? random_mask(extent.queries, extent.keys, dtype) : Tensor(),
          .grad = random_heads(extent, extent.queries, extent.value_width, 4, dtype),
          .options = {.causal = causal, .scale = 1 / std::sqrt(static_cast<double>(extent.width))}};
}

// The extents are below, at and above the borders of tiles, of widths with tiles and of other ones.
const std::vector<Extent> extents{{1, 1, 1, 1, 8, 8},       {2, 2, 17, 15, 16, 16},  {1, 2, 33, 64, 32, 32},
                                  {1, 2, 64, 64, 64, 64},   {1, 1, 65, 63, 64, 48},  {1, 1, 70, 130, 20, 33},
                                  {1, 1, 129, 129, 72, 72}, {1, 1, 40, 3, 128, 128}, {1, 3, 5, 70, 128, 7}};

template <class Visit>
void for_each_case(Visit visit) {
  for (const DType dtype : floating_types) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const Extent& extent = extents[i];
      // Each extent is tested in two of the four combinations.
      for (const bool causal : {false, true}) {
        const bool masked = causal == (i % 2 == 0);
        INFO(name_of(dtype) << ", " << extent.batch << " x " << extent.heads << " heads, " << extent.queries
                            << " queries, " << extent.keys << " keys, widths " << extent.width << " and "
                            << extent.value_width << (causal ? ", causal" : "") << (masked ? ", masked" : ""));
        visit(random_inputs(extent, dtype, causal, masked));
      }
    }
  }
}

// The operands on the device.
struct DeviceInputs {
  explicit DeviceInputs(const AttentionInputs& in, std::int64_t shift = 0)
      : query(in.query, shift),
        key(in.key),
        value(in.value, shift),
        mask(in.mask.defined() ? in.mask : Tensor::zeros({})),
        grad(in.grad),
        mask_view(in.mask.defined() ? mask.view() : left_out) {}
  DeviceTensor query, key, value, mask, grad;
  cuda::View mask_view;
};

struct Forward {
  Tensor out, log_sum;
};
Forward forward(const AttentionInputs& in, std::int64_t shift = 0) {
  const DeviceInputs device(in, shift);
  const DeviceTensor out(unwritten(in.grad.transpose(1, 2), in.query.dtype()).transpose(1, 2), shift);
  const Tensor sums = Tensor::empty({in.query.size(0), in.query.size(1), in.query.size(2)});
  const DeviceTensor log_sum(unwritten(sums, sums_type(in.query.dtype())));
  check(device_api().attention(test_device(), device.query.view(), device.key.view(), device.value.view(),
                               device.mask_view, in.options, out.view(), log_sum.view()));
  return {out.read(), log_sum.read()};
}

struct Gradients {
  Tensor query, key, value;
};
// grad_dot_out: computed if undefined. before: the values that the gradients are added to.
Gradients backward(const AttentionInputs& in, const Tensor& log_sum, const Tensor& grad_dot_out = {},
                   const Gradients* before = nullptr) {
  const DeviceInputs device(in);
  const DType dtype = in.query.dtype(), wide = sums_type(dtype);
  const DeviceTensor sums(log_sum.to(wide));
  const DeviceTensor dots(grad_dot_out.defined() ? grad_dot_out.to(wide) : Tensor::zeros({}));
  const DeviceTensor query(before != nullptr ? before->query : unwritten(in.query, dtype)),
      key(before != nullptr ? before->key : unwritten(in.key, dtype), 1),
      value(before != nullptr ? before->value : unwritten(in.value, dtype));
  check(device_api().attention_backward(test_device(), device.query.view(), device.key.view(), device.value.view(),
                                        device.mask_view, sums.view(), grad_dot_out.defined() ? dots.view() : left_out,
                                        device.grad.view(), in.options, query.view(), key.view(), value.view(),
                                        before != nullptr));
  return {query.read(), key.read(), value.read()};
}

void check_gradients(const Gradients& result, const AttentionOracle& expected, DType dtype) {
  CHECK(error_of(result.query, expected.query_grad) <= bound_of(dtype));
  CHECK(error_of(result.key, expected.key_grad) <= bound_of(dtype));
  CHECK(error_of(result.value, expected.value_grad) <= bound_of(dtype));
}

Tensor sum(const Tensor& a, const Tensor& b) {
  return kernels::add(a.to(DType::float64).contiguous(), b.to(DType::float64).contiguous());
}

}  // namespace

TEST_CASE("attention is the plain loop's") {
  for_each_case([](const AttentionInputs& in) {
    const AttentionOracle expected(in);
    const DType dtype = in.query.dtype();
    for (const std::int64_t shift : {0, 1}) {
      const Forward result = forward(in, shift);
      CHECK(error_of(result.out, expected.out) <= bound_of(dtype));
      CHECK(error_of(result.log_sum, expected.log_sum) <= bound_of(sums_type(dtype)));
    }
  });
}

TEST_CASE("the gradients of attention are the plain loop's") {
  for_each_case([](const AttentionInputs& in) {
    const AttentionOracle expected(in);
    check_gradients(backward(in, expected.log_sum), expected, in.query.dtype());
  });
}

TEST_CASE("a given product of result and gradient is used") {
  for (const DType dtype : floating_types) {
    for (const Extent& extent : {Extent{1, 2, 33, 40, 16, 24}, Extent{1, 1, 40, 3, 128, 128}}) {
      const AttentionInputs in = random_inputs(extent, dtype, true, false);
      AttentionOracle expected(in);
      check_gradients(backward(in, expected.log_sum, expected.grad_dot_out), expected, dtype);
      // Another product gives other gradients, only of queries and keys.
      const Tensor none = Tensor::zeros_like(expected.grad_dot_out);
      const Gradients other = backward(in, expected.log_sum, none);
      CHECK(error_of(other.value, expected.value_grad) <= bound_of(dtype));
      CHECK(error_of(other.query, expected.query_grad) > 0.01);
      CHECK(error_of(other.key, expected.key_grad) > 0.01);
    }
  }
}

TEST_CASE("gradients of attention are added to what is there") {
  for (const DType dtype : floating_types) {
    for (const Extent& extent : {Extent{1, 2, 33, 40, 16, 24}, Extent{1, 1, 20, 9, 100, 128}}) {
      const AttentionInputs in = random_inputs(extent, dtype, true, false);
      AttentionOracle expected(in);
      const Gradients before{random_tensor(in.query.shape(), 5).to(dtype), random_tensor(in.key.shape(), 6).to(dtype),
                             random_tensor(in.value.shape(), 7).to(dtype)};
      const Gradients result = backward(in, expected.log_sum, {}, &before);
      expected.query_grad = sum(expected.query_grad, before.query);
      expected.key_grad = sum(expected.key_grad, before.key);
      expected.value_grad = sum(expected.value_grad, before.value);
      check_gradients(result, expected, dtype);
    }
  }
}

TEST_CASE("attention reads and writes the parts of a packed projection") {
  constexpr std::int64_t batch = 2, time = 35, heads = 2, width = 24;
  for (const DType dtype : floating_types) {
    const Tensor packed = random_tensor({batch, time, 3, heads, width}, 1).to(dtype);
    const auto part = [](const Tensor& tensor, std::int64_t i) { return tensor.select(2, i).transpose(1, 2); };
    const AttentionInputs in{.query = part(packed, 0),
                             .key = part(packed, 1),
                             .value = part(packed, 2),
                             .mask = {},
                             .grad = random_tensor({batch, time, heads, width}, 2).to(dtype).transpose(1, 2),
                             .options = {.causal = true, .scale = 0.2}};
    const AttentionOracle expected(in);
    const DeviceTensor x(packed), grad(in.grad), log_sum(expected.log_sum.to(sums_type(dtype)));
    const DeviceTensor x_grad(unwritten(packed, dtype));
    const auto part_view = [&](const DeviceTensor& tensor, std::int64_t i) {
      cuda::View view = tensor.view();
      view.data = static_cast<char*>(view.data) + i * heads * width * static_cast<std::int64_t>(size_of(dtype));
      view.rank = 4;
      view.shape = {batch, heads, time, width};
      view.strides = {time * 3 * heads * width, width, 3 * heads * width, 1};
      return view;
    };
    check(device_api().attention_backward(test_device(), part_view(x, 0), part_view(x, 1), part_view(x, 2), left_out,
                                          log_sum.view(), left_out, grad.view(), in.options, part_view(x_grad, 0),
                                          part_view(x_grad, 1), part_view(x_grad, 2), false));
    const Tensor result = x_grad.read();
    check_gradients({part(result, 0), part(result, 1), part(result, 2)}, expected, dtype);
  }
}

TEST_CASE("keys in two parts give what all of them give") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const AttentionInputs in = random_inputs({2, 2, 21, 50, 12, 20}, dtype, false, true);
    const AttentionOracle expected(in);
    std::array<AttentionInputs, 2> parts{in, in};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t first = i == 0 ? 0 : 17, length = i == 0 ? 17 : 33;
      parts[i].key = in.key.slice(2, first, length);
      parts[i].value = in.value.slice(2, first, length);
      parts[i].mask = in.mask.slice(1, first, length).contiguous();
    }
    // The first part hides all keys from the third query, both from the second.
    for (std::int64_t j = 0; j < 17; ++j) {
      Tensor& mask = parts[0].mask;
      if (dtype == DType::float32)
        mask.data<float>()[2 * 17 + j] = -INFINITY;
      else
        mask.data<double>()[2 * 17 + j] = -INFINITY;
    }
    AttentionInputs all = in;
    all.mask = Tensor::zeros({21, 50}, dtype);
    Tensor left = all.mask.slice(1, 0, 17), right = all.mask.slice(1, 17, 33);
    kernels::copy(parts[0].mask, left);
    kernels::copy(parts[1].mask, right);
    const AttentionOracle whole(all);

    const Forward a = forward(parts[0]), b = forward(parts[1]);
    const auto strided = [](const Tensor& tensor) { return tensor.transpose(1, 2).contiguous().transpose(1, 2); };
    const DeviceTensor part_out(strided(a.out)), part_sum(strided(a.log_sum)), all_out(b.out), all_sum(b.log_sum);
    check(
        device_api().merge_attention(test_device(), part_out.view(), part_sum.view(), all_out.view(), all_sum.view()));
    CHECK(error_of(all_out.read(), whole.out) <= bound_of(dtype));
    CHECK(error_of(all_sum.read(), whole.log_sum) <= bound_of(dtype));

    const Gradients first = backward(parts[0], whole.log_sum, whole.grad_dot_out);
    const Gradients both = backward(parts[1], whole.log_sum, whole.grad_dot_out,
                                    std::make_unique<Gradients>(Gradients{first.query, Tensor::zeros_like(parts[1].key),
                                                                          Tensor::zeros_like(parts[1].value)})
                                        .get());
    CHECK(error_of(both.query, whole.query_grad) <= bound_of(dtype));
    CHECK(error_of(first.key, whole.key_grad.slice(2, 0, 17)) <= bound_of(dtype));
    CHECK(error_of(both.key, whole.key_grad.slice(2, 17, 33)) <= bound_of(dtype));
    CHECK(error_of(first.value, whole.value_grad.slice(2, 0, 17)) <= bound_of(dtype));
    CHECK(error_of(both.value, whole.value_grad.slice(2, 17, 33)) <= bound_of(dtype));
  }
}

TEST_CASE("attention of nothing") {
  for (const DType dtype : floating_types) {
    for (const Extent& extent : {Extent{0, 2, 5, 5, 8, 8}, Extent{1, 2, 0, 5, 8, 8}, Extent{1, 2, 5, 0, 8, 8},
                                 Extent{1, 1, 5, 5, 0, 8}, Extent{1, 1, 5, 5, 8, 0}}) {
      const AttentionInputs in = random_inputs(extent, dtype, true, false);
      AttentionInputs scaled = in;
      scaled.options.scale = 1;
      const AttentionOracle expected(scaled);
      const Forward result = forward(scaled);
      CHECK(error_of(result.out, expected.out) <= bound_of(dtype));
      CHECK(error_of(result.log_sum, expected.log_sum) <= bound_of(sums_type(dtype)));
      check_gradients(backward(scaled, expected.log_sum), expected, dtype);
    }
  }
}

TEST_CASE("attention gives the same bits again") {
  for (const DType dtype : floating_types) {
    const AttentionInputs in = random_inputs({1, 2, 70, 90, 40, 40}, dtype, true, true);
    const Forward first = forward(in), again = forward(in);
    CHECK(same_values(first.out, again.out));
    CHECK(same_values(first.log_sum, again.log_sum));
    const Gradients gradients = backward(in, first.log_sum), others = backward(in, first.log_sum);
    CHECK(same_values(gradients.query, others.query));
    CHECK(same_values(gradients.key, others.key));
    CHECK(same_values(gradients.value, others.value));
  }
}

TEST_CASE("the gradients of attention are finite differences") {
  AttentionInputs in = random_inputs({1, 1, 6, 9, 5, 4}, DType::float64, true, false);
  in.query = in.query.contiguous();
  in.key = in.key.contiguous();
  in.value = in.value.contiguous();
  const Tensor grad = in.grad.contiguous();
  const auto loss = [&] { return dot(forward(in).out.data<double>(), grad.data<double>(), grad.numel()); };
  const Gradients result = backward(in, forward(in).log_sum);
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
  check_operand(in.query, result.query);
  check_operand(in.key, result.key);
  check_operand(in.value, result.value);
}

TEST_CASE("attention refuses what it has no tiles for") {
  const AttentionInputs in = random_inputs({1, 1, 2, 2, 129, 8}, DType::float32, false, false);
  try {
    forward(in);
    FAIL("heads of width 129 were accepted");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::unsupported);
    CHECK(std::string(error.what()).find("129") != std::string::npos);
  }
}
