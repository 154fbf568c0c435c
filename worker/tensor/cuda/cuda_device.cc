#include "worker/tensor/cuda/cuda_device.h"

#include <array>
#include <atomic>
#include <mutex>

#include "worker/cuda/cuda_module.h"
#include "worker/tensor/device_fault.h"
#include "worker/tensor/device_memory.h"

namespace ddprun::cuda {
namespace {

const DeviceApi& checked_api() {
  const CudaModule& module = CudaModule::get();
  const DeviceApi& api = *module.symbol<EntryPoint>(entry_point)();
  if (api.version != interface_version) {
    throw make_error(Errc::unsupported, "the CUDA module {} has interface version {}, this program needs {}",
                     module.path(), api.version, interface_version);
  }
  return api;
}

}  // namespace

void throw_failure(const Failure& failure) {
  if (failure.exhausted == 0) throw DeviceError(failure.code, failure.text.data());
  throw OutOfDeviceMemory({DeviceType::cuda, failure.device}, failure.exhausted);
}

const DeviceApi& api() {
  static const DeviceApi& found = checked_api();
  return found;
}

int device_count() {
  int count = 0;
  check(api().device_count(&count));
  return count;
}

CudaDevice::CudaDevice(int ordinal) : api_(cuda::api()) {
  if (const int count = device_count(); ordinal >= count) {
    throw make_error(Errc::unsupported, "there is no device cuda:{}: the CUDA module {} sees {} of them", ordinal,
                     CudaModule::get().path(), count);
  }
  check(api_.open(ordinal, &context_));
}

const CudaDevice& CudaDevice::of(Device device) {
  static std::array<std::atomic<const CudaDevice*>, max_devices> opened;
  static std::mutex mutex;
  auto& slot = opened.at(static_cast<std::size_t>(device.index));
  if (const CudaDevice* found = slot.load(std::memory_order_acquire)) return *found;
  const std::lock_guard lock(mutex);
  if (const CudaDevice* found = slot.load(std::memory_order_relaxed)) return *found;
  const auto* made = new CudaDevice(device.index);
  slot.store(made, std::memory_order_release);
  return *made;
}

DeviceFacts CudaDevice::facts() const {
  DeviceFacts facts{};
  check(api_.describe(context_, &facts));
  return facts;
}

void* allocate(std::size_t bytes, Device device) {
  const CudaDevice& on = CudaDevice::of(device);
  void* memory = nullptr;
  check(on.api().allocate(on.context(), bytes, &memory));
  return memory;
}

void release(void* memory, std::size_t bytes, Device device) noexcept {
  const CudaDevice& on = CudaDevice::of(device);  // it is open: it gave the memory
  on.api().release(on.context(), memory, bytes);
}

}  // namespace ddprun::cuda
