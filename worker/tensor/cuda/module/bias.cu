#include "worker/tensor/cuda/module/columns.h"
#include "worker/tensor/cuda/module/divider.h"
#include "worker/tensor/cuda/module/reduction.h"
#include "worker/tensor/cuda/module/rows.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {
namespace {

using kernels::Axis;

// Finds the channel of an element of (outer, channels, inner).
struct Channels {
  Divider inner, count;

  DDPRUN_HOST_DEVICE std::int64_t of(std::int64_t element) const {
    const std::int64_t line = inner.quotient(element);
    return line - count.quotient(line) * count.divisor();
  }
};

// size: the number of elements that a thread has at once, of one channel, or of neighbouring ones where `inner` is 1.
template <int size, class T, class Bias>
__global__ void __launch_bounds__(block_threads, 1)
    add_bias_kernel(Channels channels, std::int64_t packs, T* x, const Bias* bias) {
  using C = ComputeType<T>;
  const int step = channels.inner.divisor() == 1 ? 1 : 0;
  for (std::int64_t i = thread_of_grid(); i < packs; i += threads_of_grid()) {
    auto& memory = reinterpret_cast<Pack<T, size>*>(x)[i];
    Pack<T, size> pack = memory;
    const Bias* own = bias + channels.of(i * size);
    for (int k = 0; k < size; ++k)
      pack.elements[k] = T(static_cast<C>(pack.elements[k]) + static_cast<C>(own[k * step]));
    memory = pack;
  }
}

template <class T, class Bias>
void add_bias_to(DeviceContext& device, const View& x, const View& bias, std::int64_t inner) {
  const std::int64_t count = element_count(x), channels = element_count(bias);
  if (count == 0) return;
  constexpr int wide = pack_size<T>;
  const auto launch_with = [&]<int size>() {
    launch(device, add_bias_kernel<size, T, Bias>, grid_of_threads(device, count / size), block_threads, 0,
           Channels{Divider(inner), Divider(channels)}, count / size, writable<T>(x), elements<Bias>(bias));
  };
  if ((inner == 1 ? channels : inner) % wide == 0 && is_aligned<wide>(elements<T>(x)))
    launch_with.template operator()<wide>();
  else
    launch_with.template operator()<1>();
}

// Sums each plane first, where a channel has more than an element of each.
template <class T, class Out>
void sum_to(DeviceContext& device, const View& grad, const Axis& axis, Out* out, bool accumulate) {
  using C = ComputeType<T>;
  if (axis.inner == 1) return sum_columns(device, {1, axis.outer, axis.n}, elements<T>(grad), out, accumulate);
  const Scratch planes = scratch_for<C>(device, axis.outer * axis.n);
  sum_rows(device, axis.outer * axis.n, axis.inner, elements<T>(grad), planes.data<C>());
  sum_columns(device, {1, axis.outer, axis.n}, static_cast<const C*>(planes.data<C>()), out, accumulate);
}

}  // namespace

void add_bias(DeviceContext& device, const View& x, const View& bias, std::int64_t /*outer*/, std::int64_t inner) {
  visit_floating(device, "add_bias", x.dtype, [&]<class T>() {
    if (bias.dtype == x.dtype)
      add_bias_to<T, T>(device, x, bias, inner);
    else
      add_bias_to<T, ComputeType<T>>(device, x, bias, inner);
  });
}

void sum_to_bias(DeviceContext& device, const View& grad, std::int64_t outer, std::int64_t inner, const View& out,
                 bool accumulate) {
  const Axis axis{outer, element_count(out), inner};
  visit_floating(device, "sum_to_bias", grad.dtype, [&]<class T>() {
    // out may be float32 while grad has 16 bits.
    if (out.dtype == grad.dtype)
      sum_to<T>(device, grad, axis, writable<T>(out), accumulate);
    else
      sum_to<T>(device, grad, axis, writable<ComputeType<T>>(out), accumulate);
  });
}

}  // namespace ddprun::cuda
