#include "common/float16.h"
#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/refuse.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/widen.h"

namespace ddprun::cuda {
namespace {

template <class E>
__global__ void widen_each(std::int64_t count, const E* __restrict__ from, bool accumulate, float* __restrict__ to) {
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid())
    to[i] = (accumulate ? to[i] : 0.0f) + static_cast<float>(from[i]);
}

}  // namespace

void widen(DeviceContext& device, const View& from, const View& to, bool accumulate) {
  const std::int64_t count = element_count(to);
  const auto run = [&]<class E>() {
    launch(device, widen_each<E>, grid_of_threads(device, count), block_threads, 0, count, elements<E>(from),
           accumulate, writable<float>(to));
  };
  if (to.dtype == DType::float32 && from.dtype == DType::bfloat16) return run.template operator()<BFloat16>();
  if (to.dtype == DType::float32 && from.dtype == DType::float16) return run.template operator()<Float16>();
  refuse_dtype(device, "widen", to.dtype);
}

}  // namespace ddprun::cuda
