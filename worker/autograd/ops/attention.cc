#include "worker/autograd/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/interruption.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

void check_mask(const Tensor& mask, DType dtype, std::int64_t queries, std::int64_t keys) {
  if (!mask.defined() || (mask.shape() == Shape{queries, keys} && mask.dtype() == dtype)) return;
  throw make_error(Errc::mismatch, "attention: a {} mask of shape {} does not fit {} {} queries and {} keys",
                   name_of(mask.dtype()), to_string(mask.shape()), queries, name_of(dtype), keys);
}

void check(const Variable& query, const Variable& key, const Variable& value, const Tensor& mask) {
  const Shape &q = query.shape(), &k = key.shape(), &v = value.shape();
  const std::size_t rank = q.size();
  bool fits = rank >= 2 && k.size() == rank && v.size() == rank && query.dtype() == key.dtype() &&
              query.dtype() == value.dtype();
  for (std::size_t i = 0; fits && i + 2 < rank; ++i) fits = q[i] == k[i] && q[i] == v[i];
  fits = fits && q[rank - 1] == k[rank - 1] && k[rank - 2] == v[rank - 2];
  if (!fits) {
    throw make_error(Errc::mismatch,
                     "attention: a query of shape {}, a key of shape {} and a value of shape {} do not fit",
                     to_string(q), to_string(k), to_string(v));
  }
  check_mask(mask, query.dtype(), q[rank - 2], k[rank - 2]);
}

// Returns (..., rows, width) as (batch, heads, rows, width), of which only the last dimension has to be dense.
Tensor as_heads(const Tensor& x) {
  if (x.dim() == 4 && x.channel_block() == 0 && (x.strides()[3] == 1 || x.size(3) <= 1)) return x;
  const Tensor dense = x.contiguous();
  const std::int64_t size = dense.size(-2) * dense.size(-1);
  return dense.reshape({1, size > 0 ? dense.numel() / size : 0, dense.size(-2), dense.size(-1)});
}

kernels::AttentionOptions settings_of(const AttentionOptions& options, std::int64_t width) {
  return {.causal = options.causal,
          .scale = options.scale.value_or(width > 0 ? 1 / std::sqrt(static_cast<double>(width)) : 1)};
}

Tensor empty_log_sum(const Tensor& query) {
  const DType dtype = query.dtype() == DType::float64 ? DType::float64 : DType::float32;
  return Tensor::empty({query.size(0), query.size(1), query.size(2)}, dtype, query.device());
}

// Samples and heads are computed apart from each other. Some threads share so many.
std::int64_t least_part(const Tensor& query) {
  constexpr std::int64_t sequences = 16;
  return (sequences + query.size(1) - 1) / std::max<std::int64_t>(query.size(1), 1);
}

// All tensors but the mask are (samples, heads, ...).
void compute_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                       const kernels::AttentionOptions& options, const kernels::AttentionResult& result) {
  autograd::compute_in_parts(query.size(0), least_part(query), [&](std::int64_t first, std::int64_t count) {
    const auto part = [&](const Tensor& whole) { return whole.slice(0, first, count); };
    kernels::of(query).attention(part(query), part(key), part(value), mask, options,
                                 {part(result.out), part(result.log_sum)});
  });
}

void compute_gradients(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                       const Tensor& log_sum, const Tensor& grad, const kernels::AttentionOptions& options,
                       const kernels::AttentionGradients& gradients) {
  autograd::compute_in_parts(query.size(0), least_part(query), [&](std::int64_t first, std::int64_t count) {
    const auto part = [&](const Tensor& whole) { return whole.slice(0, first, count); };
    kernels::of(query).attention_backward(part(query), part(key), part(value), mask, {part(log_sum)}, part(grad),
                                          options, {part(gradients.query), part(gradients.key), part(gradients.value)});
  });
}

}  // namespace

Variable attention(const Variable& given_query, const Variable& given_key, const Variable& given_value,
                   const AttentionOptions& options, const Tensor& mask_as_given) {
  using autograd::CastClass;
  const auto [query, key, value] = autograd::autocast(CastClass::lower, given_query, given_key, given_value);
  const Tensor given_mask = autograd::autocast(CastClass::lower, mask_as_given);
  const autograd::Function operation("attention", {query, key, value}, {given_mask});
  check(query, key, value, given_mask);
  const Tensor q = as_heads(query.value()), k = as_heads(key.value()), v = as_heads(value.value());
  const Tensor mask = given_mask.defined() ? given_mask.contiguous() : Tensor();
  const kernels::AttentionOptions settings = settings_of(options, q.size(3));
  Shape shape = query.shape();
  shape.back() = v.size(3);
  const Tensor out = Tensor::empty(shape, q.dtype(), q.device()), log_sum = empty_log_sum(q);
  compute_attention(q, k, v, mask, settings, {as_heads(out), log_sum});
  return operation.record(
      out, {q, k, v, mask, log_sum},
      [settings, shapes = std::array{query.shape(), key.shape(), value.shape()}](autograd::Backward& pass) {
        const Tensor &saved_q = pass.saved(0), &saved_k = pass.saved(1), &saved_v = pass.saved(2);
        const kernels::AttentionGradients gradients{Tensor::empty_like(saved_q), Tensor::empty_like(saved_k),
                                                    Tensor::empty_like(saved_v)};
        compute_gradients(saved_q, saved_k, saved_v, pass.saved(3), pass.saved(4), as_heads(pass.grad()), settings,
                          gradients);
        if (pass.wants(0)) pass.add(0, gradients.query.reshape(shapes[0]));
        if (pass.wants(1)) pass.add(1, gradients.key.reshape(shapes[1]));
        if (pass.wants(2)) pass.add(2, gradients.value.reshape(shapes[2]));
      });
}

namespace {

// (batch, time, parts, heads, width) -> part i as (batch, heads, time, width)
Tensor part_of(const Tensor& packed, std::int64_t i) {
  return packed.select(2, i).transpose(1, 2);
}
Tensor as_parts(const Tensor& tensor, std::int64_t parts, std::int64_t heads) {
  return tensor.reshape({tensor.size(0), tensor.size(1), parts, heads, tensor.size(2) / (parts * heads)});
}

}  // namespace

Variable packed_attention(const Variable& given_packed, std::int64_t heads, const AttentionOptions& options,
                          const Tensor& mask_as_given) {
  const Variable packed = autograd::autocast(autograd::CastClass::lower, given_packed);
  const Tensor given_mask = autograd::autocast(autograd::CastClass::lower, mask_as_given);
  const autograd::Function operation("packed_attention", {packed}, {given_mask});
  const Shape& shape = packed.shape();
  if (shape.size() != 3 || heads < 1 || shape[2] % (3 * heads) != 0) {
    throw make_error(Errc::mismatch, "packed_attention: {} heads do not fit an input of shape {}", heads,
                     to_string(shape));
  }
  check_mask(given_mask, packed.dtype(), shape[1], shape[1]);
  const Tensor x = packed.value().contiguous(), parts = as_parts(x, 3, heads), query = part_of(parts, 0);
  const Tensor mask = given_mask.defined() ? given_mask.contiguous() : Tensor();
  const kernels::AttentionOptions settings = settings_of(options, query.size(3));
  const Tensor out = Tensor::empty({shape[0], shape[1], shape[2] / 3}, x.dtype(), x.device());
  const Tensor log_sum = empty_log_sum(query);
  compute_attention(query, part_of(parts, 1), part_of(parts, 2), mask, settings,
                    {part_of(as_parts(out, 1, heads), 0), log_sum});
  return operation.record(out, {x, mask, log_sum}, [settings, heads](autograd::Backward& pass) {
    const Tensor& saved = pass.saved(0);
    Tensor gradient = Tensor::empty_like(saved);
    const Tensor from = as_parts(saved, 3, heads), into = as_parts(gradient, 3, heads);
    compute_gradients(part_of(from, 0), part_of(from, 1), part_of(from, 2), pass.saved(1), pass.saved(2),
                      part_of(as_parts(pass.grad(), 1, heads), 0), settings,
                      {part_of(into, 0), part_of(into, 1), part_of(into, 2)});
    pass.add(0, std::move(gradient));
  });
}

}  // namespace ddprun
