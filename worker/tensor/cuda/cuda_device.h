#pragma once

#include <cstddef>
#include <cstdint>

#include "common/error.h"
#include "worker/tensor/cuda/device_api.h"
#include "worker/tensor/device.h"

// The worker's side of CUDA devices: the module is opened, and a device within it, when the first tensor asks for it.
namespace ddprun::cuda {

[[noreturn]] void throw_failure(const Failure& failure);
// Throws what a call of the module reports: OutOfDeviceMemory where the device has not enough, else Error.
inline void check(Outcome outcome) {
  if (outcome != nullptr) throw_failure(*outcome);
}

// The functions of the module. Thread-safe. Throws Errc::unsupported without one, or for another interface version.
const DeviceApi& api();

// Returns the number of devices of this process.
int device_count();

// A device of this process, "cuda:k". Never destroyed.
//
// Threads: of() is thread-safe; calls are as DeviceApi says.
// Errors: those of api(); Errc::unsupported for a device that does not exist.
class CudaDevice {
 public:
  // REQUIRES: device.type is cuda.
  static const CudaDevice& of(Device device);

  const DeviceApi& api() const { return api_; }
  DeviceContext* context() const { return context_; }

  // Waits until the queue is empty; throws what has failed on it.
  void synchronize(Queue queue = Queue::compute) const { check(api_.synchronize(context_, queue)); }
  DeviceFacts facts() const;

  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

 private:
  explicit CudaDevice(int ordinal);

  const DeviceApi& api_;
  DeviceContext* context_ = nullptr;
};

// Allocates memory of a device, for its compute queue.
void* allocate(std::size_t bytes, Device device);
void release(void* memory, std::size_t bytes, Device device) noexcept;

}  // namespace ddprun::cuda
