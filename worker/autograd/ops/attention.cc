#include "ddprun/worker/autograd/ops/attention.h"

#include <cmath>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/autocast.h"
#include "ddprun/worker/autograd/operation.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun {
namespace {

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
  if (!mask.defined()) return;
  if (mask.shape() != Shape{q[rank - 2], k[rank - 2]} || mask.dtype() != query.dtype()) {
    throw make_error(Errc::mismatch, "attention: a {} mask of shape {} does not fit a {} query of shape {} and {} keys",
                     name_of(mask.dtype()), to_string(mask.shape()), name_of(query.dtype()), to_string(q), k[rank - 2]);
  }
}

// (..., rows, width) as (heads, rows, width)
Tensor as_heads(const Tensor& x) {
  const Tensor dense = x.contiguous();
  const std::int64_t size = dense.size(-2) * dense.size(-1);
  return dense.reshape({size > 0 ? dense.numel() / size : 0, dense.size(-2), dense.size(-1)});
}

}  // namespace

Variable attention(const Variable& given_query, const Variable& given_key, const Variable& given_value,
                   const AttentionOptions& options, const Tensor& mask_as_given) {
  using autograd::CastClass;
  const auto [query, key, value] = autograd::autocast(CastClass::lower, given_query, given_key, given_value);
  const Tensor given_mask = autograd::autocast(CastClass::lower, mask_as_given);
  const autograd::Operation operation("attention", {query, key, value}, {given_mask});
  check(query, key, value, given_mask);
  const Tensor q = as_heads(query.value()), k = as_heads(key.value()), v = as_heads(value.value());
  const Tensor mask = given_mask.defined() ? given_mask.contiguous() : Tensor();
  const double width = static_cast<double>(q.size(2));
  const kernels::AttentionOptions settings{.causal = options.causal,
                                           .scale = options.scale.value_or(width > 0 ? 1 / std::sqrt(width) : 1)};
  kernels::AttentionResult result = kernels::of(q).attention(q, k, v, mask, settings);
  Shape shape = query.shape();
  shape.back() = v.size(2);
  const Tensor out = result.out;
  return operation.record(
      out.reshape(shape), {q, k, v, mask, out, result.log_sum},
      [settings, shapes = std::array{query.shape(), key.shape(), value.shape()}](autograd::Backward& pass) {
        const Tensor& forward = pass.saved(4);
        const kernels::AttentionGradients gradients = kernels::of(forward).attention_backward(
            pass.saved(0), pass.saved(1), pass.saved(2), pass.saved(3), {forward, pass.saved(5)},
            pass.grad().reshape(forward.shape()), settings);
        if (pass.wants(0)) pass.add(0, gradients.query.reshape(shapes[0]));
        if (pass.wants(1)) pass.add(1, gradients.key.reshape(shapes[1]));
        if (pass.wants(2)) pass.add(2, gradients.value.reshape(shapes[2]));
      });
}

}  // namespace ddprun
