#include "worker/tensor/cuda/module/linear_loss.h"

#include <algorithm>

#include "worker/tensor/cuda/module/product.h"
#include "worker/tensor/cuda/module/scratch.h"
#include "worker/tensor/cuda/module/views.h"

namespace ddprun::cuda {
namespace {

View rows_of(const View& view, std::int64_t first, std::int64_t count) {
  View part = view;
  part.shape[0] = count;
  part.data =
      static_cast<std::byte*>(view.data) + static_cast<std::size_t>(first * view.strides[0]) * size_of(view.dtype);
  return part;
}

View matrix(void* data, DType dtype, std::int64_t rows, std::int64_t columns) {
  return {.data = data, .dtype = dtype, .rank = 2, .shape = {rows, columns}, .strides = {columns, 1}};
}

}  // namespace

void linear_cross_entropy(DeviceContext& device, const View& input, const View& weight, const View& targets,
                          const kernels::LinearLossOptions& options, const View& loss, const View& share,
                          const View& input_grad, const View& weight_grad) {
  const std::int64_t rows = input.shape[0], classes = weight.shape[0];
  const bool gradients = input_grad.data != nullptr;
  const std::int64_t step = std::min(rows, options.chunk_rows(classes, size_of(input.dtype)));
  const Scratch losses = scratch_for<double>(device, rows);
  const Scratch memory(device.memory, static_cast<std::size_t>(step * classes) * size_of(input.dtype));
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    const View x = rows_of(input, first, count), scores = matrix(memory.data(), input.dtype, count, classes);
    matmul(device, {}, x, weight, scores, {.transpose_b = true});
    score_losses(device, scores, rows_of(targets, first, count), options.cross_entropy, losses.data<double>() + first,
                 gradients);
    if (!gradients) continue;
    matmul(device, {}, scores, weight, rows_of(input_grad, first, count), {});
    matmul(device, {}, scores, x, weight_grad, {.transpose_a = true, .accumulate = first > 0});
  }
  mean_loss(device, rows, losses.data<double>(), targets, options.cross_entropy.ignore_index, loss, share);
}

}  // namespace ddprun::cuda
