#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <map>
#include <memory>
#include <mutex>

#include "tests/support/fake_nccl/fake_failure.h"
#include "tests/support/fake_nccl/fake_nccl.h"
#include "tests/support/fake_nccl/fake_stream.h"

// The object behind a cudaEvent_t.
struct CUevent_st {
  std::shared_ptr<std::atomic<bool>> reached = std::make_shared<std::atomic<bool>>(true);
};

namespace ddprun::testing::fake_nccl {
namespace {

constexpr int devices = 8;

struct Block {
  std::size_t bytes;
  int device;
  cudaMemoryType type;
};

// The memory that cudaMalloc and similar functions returned.
class Memory {
 public:
  void* allocate(std::size_t bytes, int device, cudaMemoryType type) {
    void* const data = std::malloc(bytes > 0 ? bytes : 1);
    const std::lock_guard lock(mutex_);
    blocks_[data] = {bytes, device, type};
    return data;
  }
  void free(void* data) {
    {
      const std::lock_guard lock(mutex_);
      blocks_.erase(data);
    }
    std::free(data);
  }
  int count(cudaMemoryType type) const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(
        std::count_if(blocks_.begin(), blocks_.end(), [=](const auto& each) { return each.second.type == type; }));
  }
  // An address within a block belongs to it.
  cudaPointerAttributes look_up(const void* address) const {
    cudaPointerAttributes attributes{};
    attributes.type = cudaMemoryTypeUnregistered;
    attributes.device = -2;
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return attributes;
    const auto& [first, block] = *--after;
    const auto offset = static_cast<const std::byte*>(address) - static_cast<const std::byte*>(first);
    if (static_cast<std::size_t>(offset) >= block.bytes) return attributes;
    attributes.type = block.type;
    attributes.device = block.device;
    return attributes;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const void*, Block> blocks_;
};

Memory& memory() {
  static Memory all;
  return all;
}

std::atomic<bool> all_memory_is_devices = false;
std::atomic<int> failing_copies = 0;  // the next ones fail
thread_local int current_device = 0;
thread_local std::string_view failing_function;

}  // namespace

FailsHere::FailsHere(std::string_view function) {
  failing_function = function;
}
FailsHere::~FailsHere() {
  failing_function = {};
}
bool fails_here(std::string_view function) {
  return failing_function == function;
}

void hold_stream(cudaStream_t stream, std::function<void()> task) {
  stream->run(std::move(task));
}

void break_copies(int count) {
  failing_copies = count;
}

int pinned_pieces() {
  return memory().count(cudaMemoryTypeHost);
}

AllMemoryIsDevices::AllMemoryIsDevices() {
  all_memory_is_devices = true;
}
AllMemoryIsDevices::~AllMemoryIsDevices() {
  all_memory_is_devices = false;
}

}  // namespace ddprun::testing::fake_nccl

using namespace ddprun::testing::fake_nccl;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (fails_here("cudaGetDeviceCount")) return cudaErrorNoDevice;
  *count = devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  std::snprintf(id, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device));
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (fails_here("cudaSetDevice") || device < 0 || device >= devices) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the fake CUDA";
}

const char* cudaGetErrorName(cudaError_t) {
  return "cudaErrorOfTheFake";
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  if (fails_here("cudaStreamCreateWithFlags")) return cudaErrorMemoryAllocation;
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

// The legacy default stream of the fake is always idle.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!stream) return cudaSuccess;
  event->reached = std::make_shared<std::atomic<bool>>(false);
  stream->run([reached = event->reached] {
    *reached = true;
    reached->notify_all();
  });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  stream->run([reached = event->reached] { reached->wait(false); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return *event->reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (fails_here("cudaMalloc")) return cudaErrorMemoryAllocation;
  *data = memory().allocate(bytes, current_device, cudaMemoryTypeDevice);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = 0;
  *total = size_t{1} << 30;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  *data = memory().allocate(bytes, current_device, cudaMemoryTypeHost);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  memory().free(data);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  memory().free(data);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (failing_copies > 0) {
    --failing_copies;
    return cudaErrorIllegalAddress;
  }
  if (bytes == 0) return cudaSuccess;  // both pointers may be null then
  stream->run([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  stream->run([=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = memory().look_up(address);
  if (attributes->type == cudaMemoryTypeUnregistered && all_memory_is_devices) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = current_device;
  }
  return cudaSuccess;
}

}  // extern "C"
