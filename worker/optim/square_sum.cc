#include "worker/optim/square_sum.h"

#include <array>
#include <numeric>

#include "worker/tensor/by_device.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/shape_only.h"

namespace ddprun::optim {

// Computes several sums side by side, which the processor can add at the same time.
template <class T>
double square_sum(std::int64_t count, const T* x) {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> sums{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      sums[static_cast<std::size_t>(lane)] += value * value;
    }
  double total = 0;
  for (; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (const double sum : sums) total += sum;
  return total;
}
template double square_sum(std::int64_t count, const float* x);
template double square_sum(std::int64_t count, const double* x);

double square_sum(const Tensor& x) {
  if (shapes_only()) return 0;
  if (x.device().type != DeviceType::cpu) return square_sum(std::vector{x});
  if (x.dtype() == DType::float64) return square_sum(x.numel(), x.data<double>());
  if (x.dtype() == DType::float32) return square_sum(x.numel(), x.data<float>());
  return square_sum(x.to(DType::float32));
}

double square_sum(const std::vector<Tensor>& tensors) {
  if (!tensors.empty() && tensors[0].device().type != DeviceType::cpu) return square_sum_there(tensors).item();
  return std::accumulate(tensors.begin(), tensors.end(), 0.0,
                         [](double sum, const Tensor& x) { return sum + square_sum(x); });
}

namespace {

// REQUIRES: all tensors are on this CUDA device.
Tensor square_sum_on(Device device, const std::vector<Tensor>& tensors) {
  Tensor sum = Tensor::empty({}, DType::float64, device);
  kernels::of(sum).square_sum(tensors, sum);
  return sum;
}

}  // namespace

Tensor square_sum_there(const std::vector<Tensor>& tensors) {
  const Device first = tensors[0].device();
  if (first.type == DeviceType::cpu) return Tensor::from(std::vector{square_sum(tensors)}, {});
  Tensor sum;
  for (const auto& [device, own] : by_device(tensors)) {
    const Tensor of_device = square_sum_on(device, own);
    sum = sum.defined() ? kernels::add(sum, of_device.to(first)) : of_device;
  }
  return sum;
}

}  // namespace ddprun::optim
