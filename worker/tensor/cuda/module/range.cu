#include <algorithm>

#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/reduction.h"
#include "worker/tensor/cuda/module/rows.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

using kernels::ValueRange;

struct Least {
  DDPRUN_HOST_DEVICE float operator()(float a, float b) const { return b < a ? b : a; }
};
struct Greatest {
  DDPRUN_HOST_DEVICE float operator()(float a, float b) const { return b > a ? b : a; }
};

constexpr std::int64_t elements_of_block = 8192;

// ranges[block] = from the least to the greatest of the block's elements. A NaN counts for nothing, unless it is the
// first element.
__global__ void __launch_bounds__(block_threads, 1)
    range_kernel(std::int64_t count, const float* low, const float* high, std::int64_t step, ValueRange* ranges) {
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * elements_of_block;
  const std::int64_t end = std::min(start + elements_of_block, count);
  ValueRange own{low[0], high[0]};
  for (std::int64_t i = start + threadIdx.x; i < end; i += block_threads) {
    own.min = Least{}(own.min, low[i * step]);
    own.max = Greatest{}(own.max, high[i * step]);
  }
  own.min = reduce_block<block_threads>(own.min, Least{});
  own.max = reduce_block<block_threads>(own.max, Greatest{});
  if (threadIdx.x == 0) ranges[blockIdx.x] = own;
}

void reduce(DeviceContext& device, std::int64_t count, const float* low, const float* high, std::int64_t step,
            ValueRange* range) {
  const std::int64_t blocks = divide_up(count, elements_of_block);
  if (blocks == 1) return launch(device, range_kernel, 1, block_threads, 0, count, low, high, step, range);
  const Scratch of_blocks = scratch_for<ValueRange>(device, blocks);
  launch(device, range_kernel, static_cast<unsigned>(blocks), block_threads, 0, count, low, high, step,
         of_blocks.data<ValueRange>());
  reduce(device, blocks, &of_blocks.data<ValueRange>()->min, &of_blocks.data<ValueRange>()->max, 2, range);
}

}  // namespace

void value_range(DeviceContext& device, const View& x, const View& range) {
  if (x.dtype != DType::float32) refuse_dtype(device, "value_range", x.dtype);
  const std::int64_t count = element_count(x);
  if (count == 0) return fill(device, range, 0);
  reduce(device, count, elements<float>(x), elements<float>(x), 1, writable<ValueRange>(range));
}

}  // namespace ddprun::cuda
