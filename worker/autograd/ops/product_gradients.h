#pragma once

#include <cstddef>

#include "worker/autograd/function.h"
#include "worker/tensor/kernels.h"

// The gradients of products, for the operations that consist of products.
namespace ddprun::autograd {

// Adds op(a) op(b) to the gradient of an input.
void add_product(Backward& pass, std::size_t input, const Shape& shape, const Tensor& a, const Tensor& b,
                 kernels::MatmulOptions options);

// Adds the gradients of a weight and a bias, by one product if both are wanted: grad (rows, out), x (rows, in).
enum class WeightLayout {
  in_out,  // the weight is (in, out): the gradient is x^T grad
  out_in,  // the weight is (out, in): the gradient is grad^T x
};
void add_parameter_gradients(Backward& pass, std::size_t weight, std::size_t bias, const Tensor& x, const Tensor& grad,
                             WeightLayout layout, DType bias_dtype);

}  // namespace ddprun::autograd
