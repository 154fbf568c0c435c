#include "worker/autograd/ops/output_loss.h"

#include <utility>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/targets.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

void check(const Variable& input, const Variable& weight) {
  const Shape &x = input.shape(), &w = weight.shape();
  if (x.size() == 2 && w.size() == 2 && x[1] == w[1] && input.dtype() == weight.dtype()) return;
  throw make_error(Errc::mismatch,
                   "linear_cross_entropy: an input, {} of shape {}, does not fit a weight, {} of shape {}",
                   name_of(input.dtype()), to_string(x), name_of(weight.dtype()), to_string(w));
}

// Adds what was computed with the loss, times the loss's own gradient: in the input's type, or that of the target.
void add_scaled(autograd::Backward& pass, std::size_t input, const Tensor& gradient, const Tensor& factor,
                DType dtype) {
  autograd::add_computed(pass, input, gradient.shape(), dtype, [&](Tensor& out, bool accumulate) {
    kernels::of(gradient).scale_by(gradient, factor, pass.saved(0), out, accumulate);
  });
}

}  // namespace

Variable linear_cross_entropy(const Variable& given_input, const Variable& given_weight, const Tensor& targets,
                              const CrossEntropyOptions& options, std::int64_t chunk_bytes) {
  const auto [input, weight] = autograd::autocast(autograd::CastClass::lower, given_input, given_weight);
  const autograd::Function operation("linear_cross_entropy", {input, weight}, {targets});
  check(input, weight);
  autograd::check_targets("linear_cross_entropy", {input.shape()[0], weight.shape()[0]}, targets, options);
  // The result has the type of a loss under autocast.
  const bool is_lowered = autograd::autocast_dtype() != DType::float32 && input.dtype() != DType::float64;
  const DType dtype = is_lowered ? DType::float32 : input.dtype();
  const kernels::LinearLossOptions settings{
      .cross_entropy = {.label_smoothing = options.label_smoothing, .ignore_index = options.ignore_index},
      .chunk_bytes = chunk_bytes};
  const Tensor x = input.value().contiguous(), w = weight.value().contiguous();
  kernels::LinearLoss loss =
      kernels::of(x).linear_cross_entropy(x, w, targets.contiguous(), settings, dtype, operation.records());
  return operation.record(std::move(loss.loss), {loss.share, loss.input, loss.weight},
                          [dtype = x.dtype()](autograd::Backward& pass) {
                            const Tensor factor = pass.grad().to(pass.saved(0).dtype());
                            add_scaled(pass, 1, pass.saved(2), factor, dtype);
                            add_scaled(pass, 0, pass.saved(1), factor, dtype);
                          });
}

}  // namespace ddprun
