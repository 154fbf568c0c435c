#include "tests/numerics/operation_table.h"

#include "worker/autograd/ops.h"
#include "worker/tensor/random.h"
#include "tests/support/numerics.h"

namespace ddprun::test {
namespace {

using autograd::CastClass;

using In = const std::vector<Variable>&;

Tensor labels(In in, const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}).to(in[0].device());
}

Tensor indices(In in, const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from(values, shape).to(in[0].device());
}

// Returns constants of an operation, with the dtype and device of its inputs.
Tensor constant(In in, const Shape& shape, double low, double high) {
  return pattern_tensor({shape, low, high}, 7, in[0].dtype(), in[0].device());
}

const InputSpec matrix{{3, 4}}, row{{4}}, positive{{3, 4}, 0.2, 2}, unit{{3, 4}, 0.05, 0.95}, image{{2, 4, 5, 6}};

// The statistics are new each time: training changes them. They have the weight's type.
Variable run_batch_norm(In in, bool training) {
  const Shape channels{in[0].shape()[1]};
  const std::vector<Variable> parameters{in[1], in[2]};
  return batch_norm(in[0], in[1], in[2], constant(parameters, channels, -0.5, 0.5),
                    constant(parameters, channels, 0.5, 2), {.training = training});
}

std::vector<OperationRow> make_table() {
  return {
      {"add", CastClass::widest, [](In in) { return add(in[0], in[1]); }, {matrix, matrix}, 0},
      {"add broadcast", CastClass::widest, [](In in) { return add(in[0], in[1]); }, {{{2, 1, 4}}, {{3, 1}}}, 0},
      {"add number", CastClass::keep, [](In in) { return add(in[0], 1.5); }, {matrix}, 0},
      {"sub", CastClass::widest, [](In in) { return sub(in[0], in[1]); }, {matrix, row}, 0},
      {"mul", CastClass::widest, [](In in) { return mul(in[0], in[1]); }, {matrix, matrix}, 2},
      {"mul broadcast", CastClass::widest, [](In in) { return mul(in[0], in[1]); }, {{{3, 1}}, {{2, 1, 4}}}, 2},
      {"mul factor", CastClass::keep, [](In in) { return mul(in[0], -2.5); }, {matrix}, 0},
      {"div", CastClass::widest, [](In in) { return div(in[0], in[1]); }, {matrix, positive}, 2},
      {"div broadcast", CastClass::widest, [](In in) { return div(in[0], in[1]); }, {matrix, {{3, 1}, 0.5, 2}}, 2},
      {"maximum", CastClass::widest, [](In in) { return maximum(in[0], in[1]); }, {matrix, matrix}, 2},
      {"minimum", CastClass::widest, [](In in) { return minimum(in[0], in[1]); }, {matrix, row}, 2},
      {"neg", CastClass::keep, [](In in) { return neg(in[0]); }, {matrix}, 0},
      {"abs", CastClass::keep, [](In in) { return abs(in[0]); }, {matrix}, 1},
      {"exp", CastClass::float32, [](In in) { return exp(in[0]); }, {matrix}, 1},
      {"log", CastClass::float32, [](In in) { return log(in[0]); }, {positive}, 1},
      {"sqrt", CastClass::keep, [](In in) { return sqrt(in[0]); }, {positive}, 1},
      {"pow", CastClass::float32, [](In in) { return pow(in[0], 1.7); }, {positive}, 1},
      {"pow square", CastClass::float32, [](In in) { return pow(in[0], 2); }, {matrix}, 1},
      {"clamp", CastClass::keep, [](In in) { return clamp(in[0], -0.3, 0.6); }, {matrix}, 1},
      {"where",
       CastClass::widest,
       [](In in) { return where(less(in[0].value(), in[1].value()), in[0], in[1]); },
       {matrix, matrix},
       1},
      {"where broadcast",
       CastClass::widest,
       [](In in) { return where(greater(in[1].value(), constant(in, {}, 0, 0)), in[0], in[1]); },
       {matrix, row},
       1},
      // It casts there and back: between equal types it does nothing.
      {"cast", CastClass::keep, [](In in) { return cast(cast(in[0], DType::float64), in[0].dtype()); }, {matrix}, 0},
      {"fake_quantize",
       CastClass::keep,
       [](In in) { return fake_quantize(in[0], {.scale = 0.0625, .zero = 5, .lowest = 0, .highest = 15}); },
       {matrix},
       1,
       true},
      // The steps are so fine that the rounding is lost: the gradient is the derivative.
      {"fake_quantize fine",
       CastClass::keep,
       [](In in) { return fake_quantize(in[0], {.scale = 0x1p-46, .lowest = -(1LL << 45), .highest = 1LL << 45}); },
       {matrix},
       1},
      {"fake_quantize_channels",
       CastClass::widest,
       [](In in) { return fake_quantize_channels(in[0], 0); },
       {{{3, 8}}},
       2,
       true},
      {"fake_quantize_channels last",
       CastClass::widest,
       [](In in) { return fake_quantize_channels(in[0], 1); },
       {{{8, 3}}},
       2,
       true},
      {"relu", CastClass::keep, [](In in) { return relu(in[0]); }, {matrix}, 1},
      {"tanh", CastClass::keep, [](In in) { return tanh(in[0]); }, {{{3, 4}, -3, 3}}, 1},
      {"sigmoid", CastClass::keep, [](In in) { return sigmoid(in[0]); }, {{{3, 4}, -4, 4}}, 1},
      {"silu", CastClass::keep, [](In in) { return silu(in[0]); }, {{{3, 4}, -4, 4}}, 1},
      {"gelu", CastClass::keep, [](In in) { return gelu(in[0]); }, {{{3, 4}, -4, 4}}, 1},
      {"gelu_tanh", CastClass::keep, [](In in) { return gelu_tanh(in[0]); }, {{{3, 4}, -4, 4}}, 1},
      {"dropout rows",
       CastClass::keep,
       [](In in) {
         return dropout(in[0], 0.4, 3, {1, 2, 9});
       },
       {matrix},
       0},
      {"dropout generator",
       CastClass::keep,
       [](In in) {
         Generator generator(5);
         return dropout(in[0], 0.4, generator);
       },
       {matrix},
       0},
      {"sum", CastClass::float32, [](In in) { return sum(in[0]); }, {matrix}, 0},
      {"sum last", CastClass::float32, [](In in) { return sum(in[0], {-1}); }, {{{2, 3, 4}}}, 0},
      {"sum middle", CastClass::float32, [](In in) { return sum(in[0], {1}); }, {{{2, 3, 4}}}, 0},
      {"sum outer",
       CastClass::float32,
       [](In in) {
         return sum(in[0], {0, 2}, true);
       },
       {{{2, 3, 4}}},
       0},
      {"mean", CastClass::float32, [](In in) { return mean(in[0]); }, {matrix}, 0},
      {"mean first", CastClass::float32, [](In in) { return mean(in[0], {0}); }, {{{2, 3, 4}}}, 0},
      {"max",
       CastClass::keep,
       [](In in) {
         return max(in[0], {0, 2});
       },
       {{{2, 3, 4}}},
       0},
      {"max_with_indices",
       CastClass::keep,
       [](In in) { return max_with_indices(in[0], 1, true).values; },
       {{{2, 3, 4}}},
       1},
      {"softmax", CastClass::float32, [](In in) { return softmax(in[0]); }, {{{3, 4}, -3, 3}}, 1},
      {"softmax middle", CastClass::float32, [](In in) { return softmax(in[0], 1); }, {{{2, 3, 4}, -3, 3}}, 0},
      {"log_softmax", CastClass::float32, [](In in) { return log_softmax(in[0]); }, {{{3, 4}, -3, 3}}, 1},
      {"log_softmax first", CastClass::float32, [](In in) { return log_softmax(in[0], 0); }, {{{3, 4}, -3, 3}}, 0},
      {"to_device",
       CastClass::keep,
       [](In in) {
         return to_device(to_device(in[0], Device{DeviceType::cpu, 5}), in[0].device());
       },
       {matrix},
       0},
      {"reshape",
       CastClass::keep,
       [](In in) {
         return reshape(in[0], {2, -1});
       },
       {matrix},
       0},
      {"flatten", CastClass::keep, [](In in) { return flatten(in[0]); }, {image}, 0},
      {"permute",
       CastClass::keep,
       [](In in) {
         return permute(in[0], {2, 0, 1});
       },
       {{{2, 3, 4}}},
       0},
      {"transpose", CastClass::keep, [](In in) { return transpose(in[0], 0, -1); }, {{{2, 3, 4}}}, 0},
      {"slice", CastClass::keep, [](In in) { return slice(in[0], 1, 1, 2); }, {matrix}, 0},
      {"select", CastClass::keep, [](In in) { return select(in[0], 0, 2); }, {matrix}, 0},
      {"expand",
       CastClass::keep,
       [](In in) {
         return expand(in[0], {2, 3, 4});
       },
       {{{3, 1}}},
       0},
      {"contiguous", CastClass::keep, [](In in) { return contiguous(transpose(in[0], 0, 1)); }, {matrix}, 0},
      {"concat",
       CastClass::widest,
       [](In in) {
         return concat({in[0], in[1]}, 1);
       },
       {matrix, {{3, 2}}},
       0},
      {"split",
       CastClass::keep,
       [](In in) {
         return split(in[0], {1, 3}, 1)[1];
       },
       {matrix},
       0},
      {"embedding",
       CastClass::keep,
       [](In in) {
         return embedding(indices(in, {4, 0, 4, 2}, {2, 2}), in[0]);
       },
       {{{5, 3}}},
       1},
      {"index_select",
       CastClass::keep,
       [](In in) {
         return index_select(in[0], indices(in, {2, 0, 2, 1, 2}, {5}));
       },
       {matrix},
       1},
      {"gather",
       CastClass::keep,
       [](In in) {
         return gather(in[0], 1, indices(in, {0, 3, 3, 1, 2, 0}, {3, 2}));
       },
       {matrix},
       1},
      {"scatter_add",
       CastClass::widest,
       [](In in) {
         return scatter_add(in[0], 0, indices(in, {0, 2, 2, 1}, {1, 4}), in[1]);
       },
       {matrix, {{1, 4}}},
       1},
      {"scatter",
       CastClass::widest,
       [](In in) {
         return scatter(in[0], 1, indices(in, {3, 0, 1, 2, 0, 3}, {3, 2}), in[1]);
       },
       {matrix, {{3, 2}}},
       1},
      {"matmul", CastClass::lower, [](In in) { return matmul(in[0], in[1]); }, {{{3, 5}}, {{5, 2}}}, 2},
      {"matmul batched",
       CastClass::lower,
       [](In in) { return matmul(in[0], in[1]); },
       {{{2, 2, 3, 4}}, {{2, 2, 4, 5}}},
       2},
      {"matmul strided",
       CastClass::lower,
       [](In in) { return matmul(in[0], transpose(in[1], -2, -1)); },
       {{{2, 3, 4}}, {{2, 5, 4}}},
       2},
      {"addmm", CastClass::lower, [](In in) { return addmm(in[0], in[1], in[2]); }, {{{2}}, {{3, 5}}, {{5, 2}}}, 2},
      {"residual_addmm",
       CastClass::keep,
       [](In in) { return residual_addmm(in[0], in[1], in[2], in[3]); },
       {{{2, 3, 4}}, {{4}}, {{2, 3, 5}}, {{5, 4}}},
       2},
      {"residual_addmm without bias",
       CastClass::keep,
       [](In in) { return residual_addmm(in[0], {}, in[1], in[2]); },
       {{{3, 4}}, {{3, 5}}, {{5, 4}}},
       2},
      {"residual_mlp",
       CastClass::keep,
       [](In in) {
         return residual_mlp(in[0], in[1], {in[2], in[3], in[4], in[5]});
       },
       {{{2, 3, 4}}, {{2, 3, 5}}, {{5, 8}, -2, 2}, {{8}}, {{8, 4}}, {{4}}},
       5},
      {"residual_mlp without biases",
       CastClass::keep,
       [](In in) {
         return residual_mlp(in[0], in[1], {in[2], {}, in[3], {}});
       },
       {{{3, 4}}, {{3, 5}}, {{5, 8}, -2, 2}, {{8, 4}}},
       5},
      {"linear", CastClass::lower, [](In in) { return linear(in[0], in[1], in[2]); }, {{{3, 5}}, {{4, 5}}, {{4}}}, 2},
      {"linear without bias", CastClass::lower, [](In in) { return linear(in[0], in[1]); }, {{{2, 3, 5}}, {{4, 5}}}, 0},
      {"grouped_mm",
       CastClass::lower,
       [](In in) {
         return grouped_mm(in[0], {2, 0, 3}, in[1], in[2]);
       },
       {{{5, 3}}, {{3, 3, 4}}, {{3, 4}}},
       2},
      {"grouped_mm without bias",
       CastClass::lower,
       [](In in) {
         return grouped_mm(in[0], {4, 1}, in[1]);
       },
       {{{5, 3}}, {{2, 3, 4}}},
       2},
      {"attention",
       CastClass::lower,
       [](In in) { return attention(in[0], in[1], in[2]); },
       {{{2, 2, 4, 3}}, {{2, 2, 5, 3}}, {{2, 2, 5, 2}}},
       5},
      {"attention causal",
       CastClass::lower,
       [](In in) { return attention(in[0], in[1], in[2], {.causal = true}); },
       {{{2, 5, 3}}, {{2, 5, 3}}, {{2, 5, 3}}},
       5},
      {"attention causal, of several tiles",
       CastClass::lower,
       [](In in) { return attention(in[0], in[1], in[2], {.causal = true}); },
       {{{1, 37, 3}}, {{1, 37, 3}}, {{1, 37, 2}}},
       5},
      {"attention masked",
       CastClass::lower,
       [](In in) {
         return attention(in[0], in[1], in[2], {.scale = 0.7}, constant(in, {4, 5}, -2, 2));
       },
       {{{2, 4, 3}}, {{2, 5, 3}}, {{2, 5, 3}}},
       5},
      {"attention strided",
       CastClass::lower,
       [](In in) { return attention(transpose(in[0], 1, 2), in[1], in[2]); },
       {{{2, 4, 2, 3}}, {{2, 2, 5, 3}}, {{2, 2, 5, 2}}},
       5},
      {"packed_attention",
       CastClass::lower,
       [](In in) { return packed_attention(in[0], 2, {.causal = true}); },
       {{{2, 5, 12}}},
       3},
      {"packed_attention masked",
       CastClass::lower,
       [](In in) {
         return packed_attention(in[0], 2, {.scale = 0.7}, constant(in, {4, 4}, -2, 2));
       },
       {{{2, 4, 6}}},
       3},
      {"batch_norm",
       CastClass::keep,
       [](In in) { return run_batch_norm(in, true); },
       {image, {{4}, 0.5, 1.5}, {{4}}},
       4},
      {"batch_norm evaluation",
       CastClass::keep,
       [](In in) { return run_batch_norm(in, false); },
       {image, {{4}, 0.5, 1.5}, {{4}}},
       4},
      {"layer_norm",
       CastClass::float32,
       [](In in) { return layer_norm(in[0], in[1], in[2]); },
       {{{2, 3, 5}}, {{5}, 0.5, 1.5}, {{5}}},
       4},
      {"layer_norm lower",
       CastClass::lower,
       [](In in) { return layer_norm(in[0], in[1], in[2], 1e-5, true); },
       {{{2, 3, 5}}, {{5}, 0.5, 1.5}, {{5}}},
       4},
      {"layer_norm plain", CastClass::float32, [](In in) { return layer_norm(in[0]); }, {{{3, 5}}}, 4},
      {"rms_norm", CastClass::float32, [](In in) { return rms_norm(in[0], in[1]); }, {{{2, 3, 5}}, {{5}, 0.5, 1.5}}, 4},
      {"group_norm",
       CastClass::float32,
       [](In in) { return group_norm(in[0], 2, in[1], in[2]); },
       {image, {{4}, 0.5, 1.5}, {{4}}},
       4},
      {"conv2d",
       CastClass::lower,
       [](In in) { return conv2d(in[0], in[1], in[2]); },
       {{{2, 2, 5, 6}}, {{3, 2, 3, 3}}, {{3}}},
       2},
      {"conv2d strided",
       CastClass::lower,
       [](In in) { return conv2d(in[0], in[1], {}, {.stride = 2, .padding = 1}); },
       {{{2, 2, 5, 6}}, {{3, 2, 3, 3}}},
       2},
      {"conv2d grouped",
       CastClass::lower,
       [](In in) { return conv2d(in[0], in[1], in[2], {.padding = 1, .groups = 2}); },
       {image, {{6, 2, 3, 3}}, {{6}}},
       2},
      {"conv2d dilated",
       CastClass::lower,
       [](In in) { return conv2d(in[0], in[1], in[2], {.stride = 2, .padding = 2, .dilation = 2}); },
       {image, {{3, 4, 3, 2}}, {{3}}},
       2},
      {"max_pool2d", CastClass::keep, [](In in) { return max_pool2d(in[0], {.kernel = 2}); }, {image}, 1},
      {"max_pool2d overlapping",
       CastClass::keep,
       [](In in) { return max_pool2d(in[0], {.kernel = 3, .stride = 2, .padding = 1}); },
       {image},
       1},
      {"avg_pool2d",
       CastClass::keep,
       [](In in) { return avg_pool2d(in[0], {.kernel = 3, .stride = 2, .padding = 1}); },
       {image},
       0},
      {"adaptive_avg_pool2d", CastClass::keep, [](In in) { return adaptive_avg_pool2d(in[0], 1, 1); }, {image}, 0},
      {"adaptive_avg_pool2d uneven",
       CastClass::keep,
       [](In in) { return adaptive_avg_pool2d(in[0], 3, 4); },
       {image},
       0},
      {"linear_cross_entropy",
       CastClass::float32,
       [](In in) {
         return linear_cross_entropy(in[0], in[1], labels(in, {2, 0, 5, 1, 3}));
       },
       {{{5, 4}}, {{6, 4}, -2, 2}},
       3},
      // The chunks have two to eight rows, by the type.
      {"linear_cross_entropy smoothed, in chunks",
       CastClass::float32,
       [](In in) {
         return linear_cross_entropy(in[0], in[1], labels(in, {2, -1, 5, 1, 3, 0, 4, -1, 2}),
                                     {.label_smoothing = 0.1, .ignore_index = -1}, 96);
       },
       {{{9, 4}}, {{6, 4}, -2, 2}},
       3},
      {"nll_loss",
       CastClass::float32,
       [](In in) {
         return nll_loss(in[0], labels(in, {2, 0, 3}));
       },
       {matrix},
       2},
      {"cross_entropy",
       CastClass::float32,
       [](In in) {
         return cross_entropy(in[0], labels(in, {2, 0, 3}));
       },
       {{{3, 4}, -3, 3}},
       2},
      {"cross_entropy smoothed",
       CastClass::float32,
       [](In in) {
         return cross_entropy(in[0], labels(in, {2, -1, 3}), {.label_smoothing = 0.1, .ignore_index = -1});
       },
       {{{3, 4}, -3, 3}},
       2},
      {"nll_loss smoothed",
       CastClass::float32,
       [](In in) {
         return nll_loss(in[0], labels(in, {2, -1, 3}), {.label_smoothing = 0.1, .ignore_index = -1});
       },
       {matrix},
       2},
      {"mse_loss",
       CastClass::float32,
       [](In in) {
         return mse_loss(in[0], constant(in, {3, 4}, -1, 1));
       },
       {matrix},
       0},
      {"smooth_l1_loss",
       CastClass::float32,
       [](In in) {
         return smooth_l1_loss(in[0], constant(in, {3, 4}, -1, 1), 0.5);
       },
       {matrix},
       0},
      {"binary_cross_entropy",
       CastClass::float32,
       [](In in) {
         return binary_cross_entropy(in[0], constant(in, {3, 4}, 0, 1));
       },
       {unit},
       0},
      {"binary_cross_entropy_with_logits",
       CastClass::float32,
       [](In in) {
         return binary_cross_entropy_with_logits(in[0], constant(in, {3, 4}, 0, 1));
       },
       {{{3, 4}, -4, 4}},
       0},
      {"kl_div",
       CastClass::float32,
       [](In in) {
         return kl_div(in[0], constant(in, {3, 4}, 0.05, 0.5));
       },
       {{{3, 4}, -3, -0.1}},
       0},
  };
}

}  // namespace

const std::vector<OperationRow>& operation_table() {
  static const std::vector<OperationRow> table = make_table();
  return table;
}

Tensor pattern_tensor(const InputSpec& spec, std::size_t input, DType dtype, Device device) {
  constexpr std::int64_t modulus = 997;
  constexpr std::int64_t factors[] = {367, 419, 503, 607, 701, 809, 907, 223};
  Tensor values = Tensor::empty(spec.shape, DType::float64);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double share =
        (static_cast<double>((i + 1) * factors[input] % modulus) + 0.25) / static_cast<double>(modulus);
    values.data<double>()[i] = spec.low + (spec.high - spec.low) * share;
  }
  return values.to(dtype).to(device);
}

std::vector<Tensor> inputs_of(const OperationRow& row, DType dtype, Device device) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    // The values pass through 16 bits, so that every type computes with the same numbers.
    const DType rounded = size_of(dtype) == 2 ? dtype : DType::float64;
    inputs.push_back(pattern_tensor(row.inputs[i], i, rounded).to(dtype).to(device));
  }
  return inputs;
}

Tensor weights_for(const Tensor& value) {
  return pattern_tensor({value.shape(), -1, 1}, 6, value.dtype(), value.device());
}

double Outcome::gradient_scale() const {
  double scale = 0;
  for (const Tensor& gradient : gradients) scale = std::max(scale, largest_magnitude(values(gradient)));
  return scale;
}

Outcome run(const OperationRow& row, const std::vector<Tensor>& inputs) {
  std::vector<Variable> variables;
  for (const Tensor& input : inputs) variables.emplace_back(input.clone(), true);
  const Variable result = row.function(variables);
  Outcome outcome{result.value().contiguous(), {}};
  result.backward(weights_for(result.value()));
  for (const Variable& variable : variables) outcome.gradients.push_back(variable.grad());
  return outcome;
}

std::vector<Tensor> widened(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> wide;
  for (const Tensor& tensor : tensors) wide.push_back(tensor.to(DType::float64));
  return wide;
}

}  // namespace ddprun::test
