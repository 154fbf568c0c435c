#include "ddprun/worker/tensor/onednn/matmul.h"

#include <algorithm>

#include <dnnl.h>

#include "ddprun/common/error.h"

namespace ddprun::onednn {

// oneDNN's sgemm rather than OpenBLAS's: on one thread of a Sapphire Rapids core it ran at 109 to 189 GFLOP/s where
// OpenBLAS 0.3.21 ran at 87 to 160, over the products of the CNN and of a 784-1024-1024-10 MLP at batch 64 (the
// smallest alike). It also brings no second set of threads beside oneDNN's own.
void multiply(const Product& product, const float* a, const float* b, float* out) {
  const auto [m, n, k, a_stride, b_stride, out_stride, options] = product;
  // oneDNN leaves the result alone where there is nothing to add up.
  if (k == 0 && !options.accumulate)
    for (std::int64_t row = 0; row < m; ++row) std::fill_n(out + row * out_stride, n, 0.0F);
  if (m == 0 || n == 0 || k == 0) return;
  const dnnl_status_t status =
      dnnl_sgemm(options.transpose_a ? 'T' : 'N', options.transpose_b ? 'T' : 'N', m, n, k, 1.0F, a, a_stride, b,
                 b_stride, options.accumulate ? 1.0F : 0.0F, out, out_stride);
  if (status != dnnl_success) {
    throw make_error(Errc::internal, "oneDNN: the product of {} x {} and {} x {} failed with status {}", m, k, k, n,
                     static_cast<int>(status));
  }
}

}  // namespace ddprun::onednn
