#pragma once

#include <cstdint>

#include "worker/tensor/geometry.h"
#include "worker/tensor/kernel_entry.h"

namespace ddprun::kernels {

// Operations that a product out = op(a) op(b) computes as well. Those of undefined tensors are left out.
struct MatmulFusion {
  Tensor bias = {};           // (n), of out's type: added to each row
  Tensor addend = {};         // like out, and not out: added
  Tensor gelu_input = {};     // like out: gets the product with its bias, and out the GELU (by tanh) of that
  Tensor gelu_gradient = {};  // like out: the product is multiplied by the GELU's derivative at these values
  Tensor sums = {};           // gets the sums of the columns of b as it is stored, or of a; float32 or of its type
  bool sums_of_a = false;
  bool accumulate_sums = false;
};

// Matrix products of the table (kernels.h), and the biases of their results and of convolutions.
struct ProductKernels {
  // x (outer, channels, inner) += bias (channels)
  Entry<void(Tensor& x, In bias, std::int64_t outer, std::int64_t inner)> add_bias{"add_bias"};
  // out (channels) = the sum of grad (outer, channels, inner) over outer and inner
  Entry<void(In grad, std::int64_t outer, std::int64_t inner, Tensor& out, bool accumulate)> sum_to_bias{"sum_to_bias"};

  // out (m, n) = op(a) (m, k) op(b) (k, n); op may transpose. A leading dimension numbers the products.
  Entry<void(In a, In b, Tensor& out, MatmulOptions)> matmul{"matmul"};
  // Does the same, and adds bias (n) to each row.
  Entry<void(In bias, In a, In b, Tensor& out, MatmulOptions)> addmm{"addmm"};
  Entry<void(In a, In b, Tensor& out, MatmulOptions)> batched_matmul{"batched_matmul"};
  // One product with more in its kernel where the device has that. An addend or a GELU excludes options.accumulate.
  Entry<void(In a, In b, Tensor& out, const MatmulFusion&, MatmulOptions)> fused_matmul{"fused_matmul"};
};

}  // namespace ddprun::kernels
