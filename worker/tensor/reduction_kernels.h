#pragma once

#include "worker/tensor/geometry.h"
#include "worker/tensor/kernel_entry.h"

namespace ddprun::kernels {

// Operations of the table (kernels.h) along an axis: out is (outer, inner).
struct ReductionKernels {
  Entry<void(In x, const Axis&, Tensor& out)> sum{"sum"};
  Entry<void(In x, const Axis&, Tensor& out, Tensor& index)> max{"max"};        // index: int64, of the first maximum
  Entry<void(In x, const Axis& rows, bool log, Tensor& y)> softmax{"softmax"};  // inner is 1
  Entry<void(In y, In grad, const Axis& rows, bool log, Tensor& out)> softmax_gradient{
      "softmax_gradient"};  // inner is 1
};

}  // namespace ddprun::kernels
