#include <utility>

#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/optimizer.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/tensor_table.h"
#include "worker/tensor/cuda/module/visit_dtype.h"
#include "worker/tensor/optimizer_update.h"

namespace ddprun::cuda {
namespace {

// update(value[i], grad[i], state[i]...) changes the value and the state.
template <class Update, class T, class... State>
__device__ void update_elements(const Update& update, std::int64_t count, T* value, const T* grad, State*... state) {
  constexpr int size = pack_size<T>;
  const bool aligned = is_aligned<size>(value) && is_aligned<size>(grad) && (is_aligned<size>(state) && ...);
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
  const std::int64_t packs = aligned ? count / size : 0;
  for (std::int64_t i = threadIdx.x; i < packs; i += block_threads)
    step(reinterpret_cast<Pack<T, size>*>(value)[i], reinterpret_cast<const Pack<T, size>*>(grad)[i],
         reinterpret_cast<Pack<State, size>*>(state)[i]...);
  for (std::int64_t i = packs * size + threadIdx.x; i < count; i += block_threads)
    update(value[i], grad[i], state[i]...);
}

// The operands are value, gradient, state.
template <class T, class Update, int operands, int... state>
__device__ void update_chunk(const Update& update, const TensorTable<operands>& table, int tensor, std::int64_t first,
                             std::int64_t count, std::integer_sequence<int, state...>) {
  const auto at = [&](int operand) { return static_cast<T*>(table.data[operand][tensor]) + first; };
  update_elements(update, count, at(0), static_cast<const T*>(at(1)), at(2 + state)...);
}

template <class T, class Update, int operands>
__global__ void __launch_bounds__(block_threads, 1)
    update_kernel(const __grid_constant__ Update update, const __grid_constant__ TensorTable<operands> table,
                  const float* skip) {
  if (skip != nullptr && *skip != 0) return;
  for_each_chunk(table, [&](int tensor, std::int64_t first, std::int64_t count, int) {
    update_chunk<T>(update, table, tensor, first, count, std::make_integer_sequence<int, operands - 2>());
  });
}

// Update<T> is made from the options of a step.
template <template <class> class Update, int operands, class Step>
void run(DeviceContext& device, const char* operation, const TensorLists<operands>& lists, const Step& step) {
  lists.for_each_table([&](const TensorTable<operands>& table, DType dtype) {
    visit_wide(device, operation, dtype, [&]<class T>() {
      launch(device, update_kernel<T, Update<T>, operands>, grid_of_blocks(device, table.chunks()), block_threads, 0,
             Update<T>(step), table, step.skip);
    });
  });
}

}  // namespace

void sgd_step(DeviceContext& device, std::size_t count, const View* values, const View* grads, const View* momenta,
              const kernels::SgdStep& step) {
  if (momenta != nullptr)
    run<kernels::SgdMomentumUpdate, 3>(device, "sgd_step", {count, {values, grads, momenta}}, step);
  else
    run<kernels::SgdUpdate, 2>(device, "sgd_step", {count, {values, grads}}, step);
}

void adam_step(DeviceContext& device, std::size_t count, const View* values, const View* grads, const View* averages,
               const View* square_averages, const kernels::AdamStep& step) {
  run<kernels::AdamUpdate, 4>(device, "adam_step", {count, {values, grads, averages, square_averages}}, step);
}

}  // namespace ddprun::cuda
