#include "ddprun/worker/tensor/cuda/module/grid.h"
#include "ddprun/worker/tensor/cuda/module/optimizer.h"
#include "ddprun/worker/tensor/cuda/module/pack.h"
#include "ddprun/worker/tensor/cuda/module/views.h"
#include "ddprun/worker/tensor/cuda/module/visit_dtype.h"
#include "ddprun/worker/tensor/optimizer_update.h"

namespace ddprun::cuda {
namespace {

// update(value[i], grad[i], state[i]...) changes the value and the state.
template <class Update, class T, class... State>
__global__ void __launch_bounds__(block_threads, 1)
    update_kernel(Update update, std::int64_t packs, std::int64_t count, T* value, const T* grad, State*... state) {
  constexpr int size = pack_size<T>;
  const auto step = [&update](auto& x, const auto& g, auto&... of_state) {
    auto own = x;
    const auto slope = g;
    const auto update_all = [&](auto... pack) {
      for (int k = 0; k < size; ++k) update(own.elements[k], slope.elements[k], pack.elements[k]...);
      ((of_state = pack), ...);
    };
    update_all(of_state...);
    x = own;
  };
  for (std::int64_t i = thread_of_grid(); i < packs; i += threads_of_grid())
    step(reinterpret_cast<Pack<T, size>*>(value)[i], reinterpret_cast<const Pack<T, size>*>(grad)[i],
         reinterpret_cast<Pack<State, size>*>(state)[i]...);
  for (std::int64_t i = packs * size + thread_of_grid(); i < count; i += threads_of_grid())
    update(value[i], grad[i], state[i]...);
}

template <class Update, class T, class... State>
void run(DeviceContext& device, const Update& update, std::int64_t count, T* value, const T* grad, State*... state) {
  if (count == 0) return;
  constexpr int size = pack_size<T>;
  const bool aligned = is_aligned<size>(value) && is_aligned<size>(grad) && (is_aligned<size>(state) && ...);
  const std::int64_t packs = aligned ? count / size : 0;
  launch(device, update_kernel<Update, T, State...>, grid_of_threads(device, aligned ? packs : count), block_threads, 0,
         update, packs, count, value, grad, state...);
}

}  // namespace

void sgd_step(DeviceContext& device, const View& value, const View& grad, const View& momentum,
              const kernels::SgdStep& step) {
  const std::int64_t count = element_count(value);
  visit_wide(device, "sgd_step", value.dtype, [&]<class T>() {
    if (momentum.data != nullptr) {
      run(device, kernels::SgdMomentumUpdate<T>(step), count, writable<T>(value), elements<T>(grad),
          writable<T>(momentum));
    } else {
      run(device, kernels::SgdUpdate<T>(step), count, writable<T>(value), elements<T>(grad));
    }
  });
}

void adam_step(DeviceContext& device, const View& value, const View& grad, const View& average,
               const View& square_average, const kernels::AdamStep& step) {
  visit_wide(device, "adam_step", value.dtype, [&]<class T>() {
    run(device, kernels::AdamUpdate<T>(step), element_count(value), writable<T>(value), elements<T>(grad),
        writable<T>(average), writable<T>(square_average));
  });
}

}  // namespace ddprun::cuda
