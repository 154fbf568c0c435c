#include "worker/tensor/cuda/module/refuse.h"

#include "common/error.h"
#include "worker/tensor/cuda/module/device.h"

namespace ddprun::cuda {

void refuse_dtype(const DeviceContext& device, const char* operation, DType dtype) {
  throw make_error(Errc::unsupported, "{} of {} tensors is not supported on {}", operation, name_of(dtype),
                   device.name());
}

void refuse_size(const DeviceContext& device, const char* operation, std::int64_t size) {
  throw make_error(Errc::unsupported, "{} of {} rows is not supported on {}", operation, size, device.name());
}

}  // namespace ddprun::cuda
