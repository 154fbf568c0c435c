#include "worker/tensor/cuda/module/attention.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/launch.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"
#include "worker/tensor/cuda/module/warp.h"
#include "worker/tensor/functors/math.h"

namespace ddprun::cuda {
namespace {

// Results and sums of (batch, heads, queries), each with strides of its own.
template <class T>
struct AttentionPart {
  T* out;
  T* log_sum;
  std::int64_t out_strides[3], log_sum_strides[3];

  __device__ T* row(const std::int64_t (&index)[3]) const { return at(out, out_strides, index); }
  __device__ T* sum(const std::int64_t (&index)[3]) const { return at(log_sum, log_sum_strides, index); }

 private:
  __device__ static T* at(T* data, const std::int64_t (&strides)[3], const std::int64_t (&index)[3]) {
    return data + index[0] * strides[0] + index[1] * strides[1] + index[2] * strides[2];
  }
};

template <class T>
AttentionPart<T> part_of(const View& out, const View& log_sum) {
  AttentionPart<T> part{writable<std::remove_const_t<T>>(out), writable<std::remove_const_t<T>>(log_sum), {}, {}};
  for (std::size_t i = 0; i < 3; ++i) {
    part.out_strides[i] = out.strides[i];
    part.log_sum_strides[i] = log_sum.strides[i];
  }
  return part;
}

// A warp has a query: it merges two results by the shares that their keys have of the sum of all.
template <class T>
__global__ void __launch_bounds__(block_threads, 1)
    merge_attention_kernel(std::int64_t rows, std::int64_t heads, std::int64_t queries, std::int64_t width,
                           AttentionPart<const T> part, AttentionPart<T> all) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  for (std::int64_t n = thread_of_grid() / warp_size; n < rows; n += threads_of_grid() / warp_size) {
    const std::int64_t index[3] = {n / queries / heads, n / queries % heads, n % queries};
    const T of_part = *part.sum(index), of_all = *all.sum(index);
    if (of_part == -static_cast<T>(__builtin_inff())) continue;  // it saw nothing
    const T highest = of_part > of_all ? of_part : of_all;
    const T merged = highest + functor::log(functor::exp(of_part - highest) + functor::exp(of_all - highest));
    const T part_share = functor::exp(of_part - merged), all_share = functor::exp(of_all - merged);
    const T* from = part.row(index);
    T* to = all.row(index);
    for (std::int64_t j = lane; j < width; j += warp_size) to[j] = all_share * to[j] + part_share * from[j];
    __syncwarp();  // all lanes have read the sum
    if (lane == 0) *all.sum(index) = merged;
  }
}

}  // namespace

void merge_attention(DeviceContext& device, const View& part_out, const View& part_log_sum, const View& all_out,
                     const View& all_log_sum) {
  const auto& shape = part_out.shape;
  const std::int64_t rows = shape[0] * shape[1] * shape[2];
  if (rows == 0) return;
  visit_wide(device, "merge_attention", part_out.dtype, [&]<class T>() {
    launch(device, merge_attention_kernel<T>, grid_of_threads(device, rows * warp_size), block_threads, 0, rows,
           shape[1], shape[2], shape[3], part_of<const T>(part_out, part_log_sum), part_of<T>(all_out, all_log_sum));
  });
}

}  // namespace ddprun::cuda
