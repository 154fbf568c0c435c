#include "worker/autograd/ops/product_gradients.h"

namespace ddprun::autograd {

void add_product(Backward& pass, std::size_t input, const Shape& shape, const Tensor& a, const Tensor& b,
                 kernels::MatmulOptions options) {
  add_computed(pass, input, shape, a.dtype(), [&](Tensor& out, bool accumulate) {
    options.accumulate = accumulate;
    kernels::of(a).matmul(a, b, out, options);
  });
}

void add_parameter_gradients(Backward& pass, std::size_t weight, std::size_t bias, const Tensor& x, const Tensor& grad,
                             WeightLayout layout, DType bias_dtype) {
  const bool transposed = layout == WeightLayout::out_in;
  const Tensor &a = transposed ? grad : x, &b = transposed ? x : grad;
  const auto add_weight = [&](kernels::MatmulFusion fusion) {
    add_computed(pass, weight, {a.size(1), b.size(1)}, a.dtype(), [&](Tensor& out, bool accumulate) {
      kernels::of(a).fused_matmul(a, b, out, fusion, {.transpose_a = true, .accumulate = accumulate});
    });
  };
  if (!pass.wants(bias)) return add_weight({});
  add_computed(pass, bias, {grad.size(1)}, bias_dtype, [&](Tensor& sums, bool accumulate) {
    if (pass.wants(weight))
      add_weight({.sums = sums, .sums_of_a = transposed, .accumulate_sums = accumulate});
    else
      kernels::of(grad).sum_to_bias(grad, grad.size(0), 1, sums, accumulate);
  });
}

}  // namespace ddprun::autograd
