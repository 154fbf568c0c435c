#pragma once

#include <vector>

#include "worker/tensor/attention_kernels.h"
#include "worker/tensor/elementwise_kernels.h"
#include "worker/tensor/image_kernels.h"
#include "worker/tensor/indexing_kernels.h"
#include "worker/tensor/loss_kernels.h"
#include "worker/tensor/normalization_kernels.h"
#include "worker/tensor/optimizer_kernels.h"
#include "worker/tensor/product_kernels.h"
#include "worker/tensor/quantized_kernels.h"
#include "worker/tensor/reduction_kernels.h"

// Operations on tensors without gradients: one table of functions per type of device. autograd/ops is the user's side:
// it checks shapes, dtypes and devices, and knows the gradients. Here they are REQUIRED to fit, and inputs are
// contiguous unless a comment says "strided", or "dense": row-major or blocked by channels, all operands alike. Results
// are new tensors unless they are arguments; "accumulate" adds to them instead of overwriting.
//
// Types: float32, float64, and bfloat16 and float16, which are stored in 16 bits and computed in float32.
// Sums are taken in an order that depends only on shapes, so the same input gives the same bits.
//
// Ownership: tables live as long as the process; results own their memory. Threads: any, as long as none writes a
// tensor that another one uses. Errors: an entry throws Errc::unsupported where its device does not have it.
namespace ddprun::kernels {

// An operation is an entry of the struct of its topic.
struct Table : ElementwiseKernels,
               ReductionKernels,
               IndexingKernels,
               ProductKernels,
               QuantizedKernels,
               ImageKernels,
               NormalizationKernels,
               LossKernels,
               AttentionKernels,
               OptimizerKernels {};

// The table of a device's type. Throws what cuda::api() throws where a CUDA device is asked for and there is no module.
const Table& table(Device device);
inline const Table& of(const Tensor& tensor) {
  return table(tensor.device());
}

// Shorthands, with a new tensor as result.

void copy(const Tensor& from, Tensor& to);
void fill(Tensor& to, double value);
Tensor unary(Unary function, const Tensor& x, const Arguments& arguments = {});
// Adds tensors of equal shapes.
Tensor add(const Tensor& a, const Tensor& b);
void add_in_place(Tensor& a, const Tensor& b);  // a += b
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& a, double factor);
Tensor sum(const Tensor& x);  // the sum of all elements, a scalar
// Returns the sum over the dimensions in which x was broadcast from shape.
Tensor sum_to(const Tensor& x, const Shape& shape);
// Returns, for each row of (rows, n), the first index of its maximum; int64.
Tensor argmax_rows(const Tensor& scores);
// The host waits for a CUDA device. Of several tensors none is read after the first that is not finite.
bool all_finite(const Tensor& x);
bool all_finite(const std::vector<Tensor>& tensors);

}  // namespace ddprun::kernels
