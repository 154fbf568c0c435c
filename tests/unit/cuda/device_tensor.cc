#include "tests/unit/cuda/device_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/error.h"

namespace ddprun::test {
namespace {

constexpr std::size_t guard = 64;  // bytes on each side
constexpr unsigned char guard_byte = 0xa5;

// Returns the bytes from the first element to the end of the last one.
std::size_t extent(const Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape().size(); ++i) last += (tensor.shape()[i] - 1) * tensor.strides()[i];
  return static_cast<std::size_t>(last + 1) * size_of(tensor.dtype());
}

cuda::View view_of(const Tensor& tensor, void* data) {
  cuda::View view{.data = data, .dtype = tensor.dtype(), .rank = static_cast<int>(tensor.dim())};
  for (std::size_t i = 0; i < tensor.shape().size(); ++i) {
    view.shape[i] = tensor.shape()[i];
    view.strides[i] = tensor.strides()[i];
  }
  return view;
}

}  // namespace

DeviceTensor::DeviceTensor(const Tensor& host, std::int64_t shift)
    : like_(host),
      before_(guard + static_cast<std::size_t>(shift) * size_of(host.dtype())),
      bytes_(extent(host)),
      total_(before_ + bytes_ + guard) {
  check(device_api().allocate(test_device(), total_, &memory_));
  std::vector<unsigned char> image(total_, guard_byte);
  if (bytes_ > 0) std::memcpy(image.data() + before_, host.raw(), bytes_);
  check(device_api().copy_bytes(test_device(), cuda::Queue::compute, cuda::Direction::to_device, memory_, image.data(),
                                total_));
  check(device_api().synchronize(test_device(), cuda::Queue::compute));
  view_ = view_of(host, static_cast<char*>(memory_) + before_);
}

DeviceTensor::~DeviceTensor() {
  device_api().release(test_device(), memory_, total_);
}

Tensor DeviceTensor::read() const {
  std::vector<unsigned char> image(total_);
  check(device_api().copy_bytes(test_device(), cuda::Queue::compute, cuda::Direction::to_host, image.data(), memory_,
                                total_));
  check(device_api().synchronize(test_device(), cuda::Queue::compute));
  for (std::size_t i = 0; i < total_; ++i) {
    const bool outside = i < before_ || i >= before_ + bytes_;
    if (outside && image[i] != guard_byte)
      throw make_error(Errc::internal, "byte {} of {} was written, outside of the tensor", i, total_);
  }
  if (bytes_ == 0) return Tensor::empty(like_.shape(), like_.dtype());
  // The original has the strides.
  const auto elements = static_cast<std::int64_t>(bytes_ / size_of(like_.dtype()));
  Tensor flat = Tensor::empty({elements}, like_.dtype());
  std::memcpy(flat.raw(), image.data() + before_, bytes_);
  Tensor result = Tensor::empty(like_.shape(), like_.dtype());
  const std::size_t size = size_of(like_.dtype());
  for (std::int64_t i = 0; i < like_.numel(); ++i) {
    std::int64_t rest = i, from = 0;
    for (std::size_t dim = like_.shape().size(); dim-- > 0; rest /= like_.shape()[dim])
      from += rest % like_.shape()[dim] * like_.strides()[dim];
    std::memcpy(static_cast<char*>(result.raw()) + static_cast<std::size_t>(i) * size,
                static_cast<const char*>(flat.raw()) + static_cast<std::size_t>(from) * size, size);
  }
  return result;
}

bool same_values(const Tensor& given_a, const Tensor& given_b) {
  const Tensor a = given_a.contiguous(), b = given_b.contiguous();
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const std::size_t size = size_of(a.dtype());
  const Tensor wide_a = is_floating(a.dtype()) ? a.to(DType::float64) : a;
  const Tensor wide_b = is_floating(b.dtype()) ? b.to(DType::float64) : b;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i) * size;
    const auto bytes = [&](const Tensor& tensor) { return static_cast<const char*>(tensor.raw()) + at; };
    if (std::memcmp(bytes(a), bytes(b), size) == 0) continue;
    if (!is_floating(a.dtype())) return false;
    if (!std::isnan(wide_a.data<double>()[i]) || !std::isnan(wide_b.data<double>()[i])) return false;
  }
  return true;
}

bool same_results(const Tensor& of_device, const Tensor& of_cpu) {
  if (device_api().emulated || of_cpu.dtype() != DType::float64) return same_values(of_device, of_cpu);
  const Tensor found = of_device.contiguous(), expected = of_cpu.contiguous();
  if (found.shape() != expected.shape()) return false;
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    const double a = found.data<double>()[i], b = expected.data<double>()[i];
    const double most = 16 * std::numeric_limits<double>::epsilon() * std::max(1.0, std::abs(b));
    if (!(a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= most)) return false;
  }
  return true;
}

}  // namespace ddprun::test
