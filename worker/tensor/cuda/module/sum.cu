#include "worker/tensor/cuda/module/columns.h"
#include "worker/tensor/cuda/module/reduction.h"
#include "worker/tensor/cuda/module/rows.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {

void sum(DeviceContext& device, const View& x, const kernels::Axis& axis, const View& out) {
  visit_floating(device, "sum", x.dtype, [&]<class T>() {
    if (axis.inner == 1)
      sum_rows(device, axis.outer, axis.n, elements<T>(x), writable<T>(out));
    else
      sum_columns(device, axis, elements<T>(x), writable<T>(out), false);
  });
}

}  // namespace ddprun::cuda
