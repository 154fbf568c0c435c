#include <cstdint>
#include <utility>

#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/optimizer.h"
#include "worker/tensor/cuda/module/pack.h"
#include "worker/tensor/cuda/module/scratch.h"
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

// The constants of a step are the host's, or lie in the device's memory.
template <class Update>
__device__ const Update& update_of(const Update& update) {
  return update;
}
template <class Update>
__device__ const Update& update_of(const Update* update) {
  return *update;
}

template <class T, class Source, int operands>
__global__ void __launch_bounds__(block_threads, 1)
    update_kernel(const __grid_constant__ Source source, const __grid_constant__ TensorTable<operands> table,
                  const float* skip) {
  if (skip != nullptr && *skip != 0) return;
  const auto& update = update_of(source);
  for_each_chunk(table, [&](int tensor, std::int64_t first, std::int64_t count, int) {
    update_chunk<T>(update, table, tensor, first, count, std::make_integer_sequence<int, operands - 2>());
  });
}

__device__ kernels::AdamStep known_step(kernels::AdamStep step) {
  step.step -= static_cast<std::int64_t>(*step.left_out);
  return step;
}
__device__ kernels::EmaStep known_step(kernels::EmaStep step) {
  step.first = *step.made == 1;
  return step;
}

// Makes the constants of a step that depends on a number of the device, once for all threads of the step.
template <class Update, class Step>
__global__ void __launch_bounds__(1) make_update_kernel(const __grid_constant__ Step step, Update* update) {
  if (step.skip == nullptr || *step.skip == 0) *update = Update(known_step(step));
}

template <class T, int operands, class Source>
void launch_update(DeviceContext& device, const TensorTable<operands>& table, const Source& source, const float* skip) {
  launch(device, update_kernel<T, Source, operands>, grid_of_blocks(device, table.chunks()), block_threads, 0, source,
         table, skip);
}

// Update<T> is made from the options of a step.
template <template <class> class Update, int operands, class Step>
void run(DeviceContext& device, const char* operation, const TensorLists<operands>& lists, const Step& step) {
  lists.for_each_table([&](const TensorTable<operands>& table, DType dtype) {
    visit_wide(device, operation, dtype,
               [&]<class T>() { launch_update<T>(device, table, Update<T>(step), step.skip); });
  });
}
// The variant for a step that depends on a number of the device.
template <template <class> class Update, int operands, class Step>
void run_late(DeviceContext& device, const char* operation, const TensorLists<operands>& lists, const Step& step) {
  lists.for_each_table([&](const TensorTable<operands>& table, DType dtype) {
    visit_wide(device, operation, dtype, [&]<class T>() {
      const Scratch memory = scratch_for<Update<T>>(device, 1);
      const auto* constants = memory.data<Update<T>>();
      launch(device, make_update_kernel<Update<T>, Step>, 1, 1, 0, step, memory.data<Update<T>>());
      launch_update<T>(device, table, constants, step.skip);
    });
  });
}

// The operands are value, gradient, momentum, and whether the momentum has started.
template <class T>
__global__ void __launch_bounds__(block_threads, 1)
    dampened_kernel(const __grid_constant__ kernels::SgdMomentumUpdate<T> first,
                    const __grid_constant__ kernels::SgdMomentumUpdate<T> later,
                    const __grid_constant__ TensorTable<4> table, const float* skip) {
  if (skip != nullptr && *skip != 0) return;
  for_each_chunk(table, [&](int tensor, std::int64_t begin, std::int64_t count, int) {
    const auto at = [&](int operand) { return static_cast<T*>(table.data[operand][tensor]) + begin; };
    const bool started = *static_cast<const std::int64_t*>(table.data[3][tensor]) != 0;
    update_elements(started ? later : first, count, at(0), static_cast<const T*>(at(1)), at(2));
  });
}

// A kernel of its own, as all blocks of the step have to read the number before.
__global__ void __launch_bounds__(block_threads)
    mark_started_kernel(const __grid_constant__ TensorTable<4> table, const float* skip) {
  if (skip != nullptr && *skip != 0) return;
  for (int tensor = static_cast<int>(threadIdx.x); tensor < table.tensors; tensor += block_threads)
    *static_cast<std::int64_t*>(table.data[3][tensor]) = 1;
}

void run_dampened(DeviceContext& device, const TensorLists<4>& lists, const kernels::SgdStep& step) {
  lists.for_each_table([&](const TensorTable<4>& table, DType dtype) {
    visit_wide(device, "sgd_step", dtype, [&]<class T>() {
      using Update = kernels::SgdMomentumUpdate<T>;
      launch(device, dampened_kernel<T>, grid_of_blocks(device, table.chunks()), block_threads, 0, Update(step, true),
             Update(step), table, step.skip);
    });
    launch(device, mark_started_kernel, 1, block_threads, 0, table, step.skip);
  });
}

}  // namespace

void sgd_step(DeviceContext& device, std::size_t count, const View* values, const View* grads, const View* momenta,
              const View* started, const kernels::SgdStep& step) {
  if (started != nullptr)
    run_dampened(device, {count, {values, grads, momenta, started}}, step);
  else if (momenta != nullptr)
    run<kernels::SgdMomentumUpdate, 3>(device, "sgd_step", {count, {values, grads, momenta}}, step);
  else
    run<kernels::SgdUpdate, 2>(device, "sgd_step", {count, {values, grads}}, step);
}

void adam_step(DeviceContext& device, std::size_t count, const View* values, const View* grads, const View* averages,
               const View* square_averages, const kernels::AdamStep& step) {
  const TensorLists<4> lists{count, {values, grads, averages, square_averages}};
  if (step.left_out == nullptr)
    run<kernels::AdamUpdate>(device, "adam_step", lists, step);
  else
    run_late<kernels::AdamUpdate>(device, "adam_step", lists, step);
}

void ema_step(DeviceContext& device, std::size_t count, const View* averages, const View* values,
              const kernels::EmaStep& step) {
  const TensorLists<2> lists{count, {averages, values}};
  if (step.made == nullptr)
    run<kernels::EmaUpdate>(device, "ema_step", lists, step);
  else
    run_late<kernels::EmaUpdate>(device, "ema_step", lists, step);
}

}  // namespace ddprun::cuda
