#pragma once

#include "worker/tensor/geometry.h"
#include "worker/tensor/kernel_entry.h"

namespace ddprun::kernels {

// Operations of the table (kernels.h) with indices, which are int64 within range.
struct IndexingKernels {
  Entry<void(In x, const Axis&, In index, Tensor& out)> gather{"gather"};  // out[o, j, i] = x[o, index[o, j, i], i]
  Entry<void(In x, const Axis& of_out, In index, Tensor& out)> scatter_add{
      "scatter_add"};                                                               // out[o, index[o, j, i], i] += x
  Entry<void(In x, const Axis& of_out, In index, Tensor& out)> scatter{"scatter"};  // the same with = in place of +=
  Entry<void(In table, In index, Tensor& out)> gather_rows{"gather_rows"};
  Entry<void(In x, In index, Tensor& out)> scatter_add_rows{"scatter_add_rows"};
};

}  // namespace ddprun::kernels
