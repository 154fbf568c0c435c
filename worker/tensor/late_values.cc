#include "worker/tensor/late_values.h"

#include "worker/tensor/cuda/cuda_device.h"

namespace ddprun {

std::size_t LateValues::add(const Tensor& given) {
  const std::size_t number = types_.size();
  if (device_.type == DeviceType::cpu) {
    of_host_.push_back(given.item());
    types_.push_back(DType::float64);
    ++known_;
    return number;
  }
  if (number == blocks_.size() * values_of_block)
    blocks_.push_back(Tensor::empty_pinned({std::int64_t{values_of_block}}, DType::float64));
  const Tensor here = given.to(device_);
  const Tensor value = here.dtype() == DType::float64 ? here : here.to(DType::float32);
  copy_bytes(value, slot(number));
  types_.push_back(value.dtype());
  return number;
}

void LateValues::copy(const Tensor& from, Tensor& to) const {
  copy_bytes(from, to.raw());
}

void LateValues::copy_bytes(const Tensor& from, void* to) const {
  const auto& on = cuda::CudaDevice::of(device_);
  cuda::check(
      on.api().copy_bytes(on.context(), cuda::Queue::compute, cuda::Direction::to_host, to, from.raw(), from.bytes()));
}

void LateValues::wait() {
  if (are_known()) return;
  cuda::CudaDevice::of(device_).synchronize();
  known_ = types_.size();
}

double LateValues::at(std::size_t number) const {
  if (device_.type == DeviceType::cpu) return of_host_.at(number);
  if (types_.at(number) == DType::float32) return static_cast<double>(*static_cast<const float*>(slot(number)));
  return *static_cast<const double*>(slot(number));
}

void LateValues::clear() {
  of_host_.clear();
  types_.clear();
  known_ = 0;
}

void* LateValues::slot(std::size_t number) const {
  Tensor block = blocks_[number / values_of_block];
  return block.data<double>() + number % values_of_block;
}

}  // namespace ddprun
