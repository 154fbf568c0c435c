#include "worker/tensor/cuda/view.h"

#include <algorithm>

namespace ddprun::cuda {

static_assert(View::max_rank == Shape::max_rank);

View view_of(const Tensor& tensor) {
  View view;
  if (!tensor.defined()) return view;
  view.data = const_cast<void*>(tensor.raw());  // a const Tensor is a handle that does not change: its elements may
  view.dtype = tensor.dtype();
  view.rank = static_cast<int>(tensor.dim());
  std::ranges::copy(tensor.shape(), view.shape.begin());
  std::ranges::copy(tensor.strides(), view.strides.begin());
  return view;
}

}  // namespace ddprun::cuda
