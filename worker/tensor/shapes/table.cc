#include "worker/tensor/shapes/table.h"

#include <algorithm>

#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/visit_dtype.h"
#include "worker/tensor/onednn/conv.h"
#include "worker/tensor/shape_only.h"

namespace ddprun::shapes {
namespace {

using cpu::is_16_bit;
using cpu::widened;
using kernels::In;
using kernels::NormGradients;
using kernels::NormStatistics;

// The host reads counters, flags and losses, which are not larger, and indices.
constexpr std::size_t most_bytes_of_values = 4 << 10;

bool has_values(const Tensor& tensor) {
  return tensor.dtype() == DType::int64 || tensor.bytes() <= most_bytes_of_values;
}

const kernels::Table& computing() {
  static const kernels::Table table = cpu::make_table();
  return table;
}

// --- operations on tensors that exist

void clear(Tensor& result) {
  if (has_values(result)) computing().fill(result, 0);
}
template <class T>
void clear(const T&) {}

template <class... Parameters>
void leave_out(Parameters... arguments) {
  (clear(arguments), ...);
}
template <class... Parameters>
void skip(kernels::Entry<void(Parameters...)>& entry) {
  entry = leave_out<Parameters...>;
}

void copy(In from, Tensor& to) {
  if (has_values(to)) computing().copy(from, to);
}
void cast_all(const std::vector<Tensor>&, const std::vector<Tensor>&) {}
void fill(Tensor& to, double value) {
  if (has_values(to)) computing().fill(to, value);
}

void skip_all(kernels::Table& table) {
  skip(table.unary);
  skip(table.unary_gradient);
  skip(table.binary);
  skip(table.binary_gradient);
  skip(table.compare);
  skip(table.where);
  skip(table.dropout);
  skip(table.sum);
  skip(table.max);
  skip(table.softmax);
  skip(table.softmax_gradient);
  skip(table.gather);
  skip(table.scatter_add);
  skip(table.scatter);
  skip(table.gather_rows);
  skip(table.scatter_add_rows);
  skip(table.add_bias);
  skip(table.sum_to_bias);
  skip(table.merge_attention);
  skip(table.sgd_step);
  skip(table.adam_step);
  skip(table.ema_step);
}

// --- products

// The operations of (m, k) (k, n), of which out has as many products as it has leading indices.
double operations_of(In a, In out, const kernels::MatmulOptions& options) {
  return 2 * static_cast<double>(out.numel()) * static_cast<double>(a.size(options.transpose_a ? -2 : -1));
}

void matmul(In a, In, Tensor& out, kernels::MatmulOptions options) {
  add_operations_left_out(operations_of(a, out, options));
}
void addmm(In, In a, In, Tensor& out, kernels::MatmulOptions options) {
  add_operations_left_out(operations_of(a, out, options));
}
void fused_matmul(In a, In, Tensor& out, const kernels::MatmulFusion&, kernels::MatmulOptions options) {
  add_operations_left_out(operations_of(a, out, options));
}

// The operations of both products of a forward pass.
double operations_of(In query, In key, const kernels::AttentionOptions& options) {
  const double seen = options.causal ? 0.5 : 1;
  return seen * 4 * static_cast<double>(query.numel()) * static_cast<double>(key.size(2));
}

void attention(In query, In key, In, In, const kernels::AttentionOptions& options, const kernels::AttentionResult&) {
  add_operations_left_out(operations_of(query, key, options));
}
void attention_backward(In query, In key, In, In, const kernels::AttentionSums&, In,
                        const kernels::AttentionOptions& options, const kernels::AttentionGradients&) {
  add_operations_left_out(2.5 * operations_of(query, key, options));  // the scores once more, and four gradients
}

// --- convolutions and pooling

double operations_of(const kernels::ConvGeometry& g) {
  return 2 * static_cast<double>(g.batch * g.out_channels * g.out_h * g.out_w) *
         static_cast<double>(g.in_channels / g.groups * g.kernel_h * g.kernel_w);
}

Tensor empty_image(const Shape& shape, std::int64_t block, In like) {
  return block != 0 ? Tensor::empty_blocked(shape, block, like.dtype(), like.device())
                    : Tensor::empty(shape, like.dtype(), like.device());
}

bool needs_widening(const kernels::ConvGeometry& g, In x) {
  return is_16_bit(x) && !onednn::convolves_fast(g, x.dtype());
}

onednn::ImageBlocks blocks_of(const kernels::ConvGeometry& g, DType dtype) {
  return dtype == DType::float64 ? onednn::ImageBlocks{} : onednn::preferred_blocks(g, dtype);
}

Tensor conv2d(const kernels::ConvGeometry& g, In x, In weight, In bias) {
  if (needs_widening(g, x)) return conv2d(g, widened(x), widened(weight), widened(bias)).to(x.dtype());
  add_operations_left_out(operations_of(g));
  return empty_image({g.batch, g.out_channels, g.out_h, g.out_w}, blocks_of(g, x.dtype()).y, x);
}
Tensor conv2d_backward_input(const kernels::ConvGeometry& g, In grad, In weight) {
  if (needs_widening(g, grad)) return conv2d_backward_input(g, widened(grad), widened(weight)).to(grad.dtype());
  add_operations_left_out(operations_of(g));
  return empty_image({g.batch, g.in_channels, g.height, g.width}, blocks_of(g, grad.dtype()).x, grad);
}
void conv2d_backward_weight(const kernels::ConvGeometry& g, In x, In grad, Tensor& weight_grad, bool accumulate) {
  if (needs_widening(g, grad)) return conv2d_backward_weight(g, widened(x), widened(grad), weight_grad, accumulate);
  add_operations_left_out(operations_of(g));
}

// Pools compute 16 bits in float32.
Tensor pooled(In x, const Shape& shape) {
  return is_16_bit(x) ? pooled(widened(x), shape).to(x.dtype()) : Tensor::empty(shape, x.dtype(), x.device());
}
Tensor max_pool2d(const kernels::PoolGeometry&, In x, const Shape& shape, Tensor& index) {
  index = Tensor::empty(shape, DType::int32, x.device());
  return pooled(x, shape);
}
Tensor max_pool2d_backward(const kernels::PoolGeometry&, In grad, In, const Shape& shape) {
  return pooled(grad, shape);
}
Tensor pool(const kernels::PoolGeometry&, In x, const Shape& shape) {
  return pooled(x, shape);
}

// --- normalization

DType statistics_type(In x) {
  return is_16_bit(x) ? DType::float32 : x.dtype();
}

NormStatistics batch_statistics(In x, std::int64_t outer, std::int64_t inner, double, Tensor& variance) {
  variance = Tensor::empty({x.numel() / std::max<std::int64_t>(outer * inner, 1)}, statistics_type(x), x.device());
  return {Tensor::empty_like(variance), Tensor::empty_like(variance)};
}
Tensor inverse_deviation(In variance, double) {
  return Tensor::empty_like(widened(variance));
}
Tensor batch_norm(In x, std::int64_t, std::int64_t, const NormStatistics&, In, In) {
  return Tensor::empty_like(x);
}
NormGradients batch_norm_backward(In x, In, std::int64_t, std::int64_t, const NormStatistics&, In weight, bool) {
  return {Tensor::empty_like(x), Tensor::empty_like(weight), Tensor::empty_like(weight)};
}

Tensor group_norm(In x, const kernels::Axis& groups, bool centred, double eps, In weight, In bias, DType result,
                  NormStatistics& statistics) {
  if (is_16_bit(x))
    return group_norm(widened(x), groups, centred, eps, weight, bias, DType::float32, statistics).to(result);
  const Tensor y = Tensor::empty_like(x);
  statistics = {Tensor::empty({groups.outer}, x.dtype(), x.device()),
                Tensor::empty({groups.outer}, x.dtype(), x.device())};
  return y.to(result);
}

NormGradients group_norm_backward(In x, In grad, const kernels::Axis& groups, bool centred,
                                  const NormStatistics& statistics, In weight, bool has_bias) {
  if (is_16_bit(x)) {
    NormGradients wide =
        group_norm_backward(widened(x), widened(grad), groups, centred, statistics, widened(weight), has_bias);
    for (Tensor* tensor : {&wide.x, &wide.weight, &wide.bias})
      if (tensor->defined()) *tensor = tensor->to(x.dtype());
    return wide;
  }
  NormGradients out{Tensor::empty_like(x), {}, {}};
  if (weight.defined()) out.weight = Tensor::empty_like(weight);
  if (has_bias) out.bias = Tensor::empty_like(weight);
  return out;
}

// --- losses

Tensor nll_loss(In log_probabilities, In, const kernels::CrossEntropyOptions&) {
  return Tensor::zeros({}, log_probabilities.dtype(), log_probabilities.device());
}
Tensor gradient_of_scores(In log_probabilities, In, const kernels::CrossEntropyOptions&, double) {
  return Tensor::empty_like(log_probabilities);
}

kernels::ValueRange value_range(In) {
  return {};
}

}  // namespace

// Operations that are not listed are made of others.
kernels::Table make_table() {
  kernels::Table table = cpu::make_table();
  skip_all(table);
  table.copy = copy;
  table.cast_all = cast_all;
  table.fill = fill;
  table.matmul = matmul;
  table.batched_matmul = matmul;
  table.addmm = addmm;
  table.fused_matmul = fused_matmul;
  table.attention = attention;
  table.attention_backward = attention_backward;
  table.conv2d = conv2d;
  table.conv2d_backward_input = conv2d_backward_input;
  table.conv2d_backward_weight = conv2d_backward_weight;
  table.max_pool2d = max_pool2d;
  table.max_pool2d_backward = max_pool2d_backward;
  for (auto* entry : {&table.avg_pool2d, &table.adaptive_avg_pool2d}) *entry = pool;
  for (auto* entry : {&table.avg_pool2d_backward, &table.adaptive_avg_pool2d_backward}) *entry = pool;
  table.batch_statistics = batch_statistics;
  table.inverse_deviation = inverse_deviation;
  table.batch_norm = batch_norm;
  table.batch_norm_backward = batch_norm_backward;
  table.group_norm = group_norm;
  table.group_norm_backward = group_norm_backward;
  table.nll_loss = nll_loss;
  table.nll_loss_backward = gradient_of_scores;
  table.cross_entropy_backward = gradient_of_scores;
  table.value_range = value_range;
  return table;
}

}  // namespace ddprun::shapes
