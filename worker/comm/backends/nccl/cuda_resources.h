#pragma once

#include <chrono>
#include <cstddef>
#include <cuda_runtime_api.h>
#include <string>
#include <thread>

#include "ddprun/common/deadline.h"
#include "ddprun/common/error.h"

namespace ddprun::comm {

inline void check_cuda(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw make_error(Errc::io, "CUDA: {}: {}", what, cudaGetErrorString(result));
}

// "0000:01:00.0"
inline std::string bus_id_of(int device) {
  char id[32] = "";
  check_cuda(cudaDeviceGetPCIBusId(id, sizeof id, device), "asking for the device's place");
  return id;
}

// While it lives, this is the current device of this thread.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check_cuda(cudaGetDevice(&previous_), "asking for the current device");
    check_cuda(cudaSetDevice(device), "choosing the device");
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() { cudaSetDevice(previous_); }

 private:
  int previous_ = 0;
};

// Work on it begins after what the reusable_transport default stream was given before.
class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreate(&stream_), "making a stream"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  // Until all that it was given is done or has failed, or until the deadline.
  void await_idle(Deadline deadline) const noexcept {
    constexpr std::chrono::microseconds between_looks(50);
    while (cudaStreamQuery(stream_) == cudaErrorNotReady && !deadline.expired())
      std::this_thread::sleep_for(between_looks);
  }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }

  void record(const Stream& stream) { check_cuda(cudaEventRecord(event_, stream.get()), "recording an event"); }
  // Whether all that came before it is done. Throws what failed of that.
  bool reached() const {
    const auto result = cudaEventQuery(event_);
    if (result == cudaErrorNotReady) return false;
    check_cuda(result, "an operation on the device");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Of the host, where the device reaches it by itself: a copy between the two lets its caller go on.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes) { check_cuda(cudaMallocHost(&data_, bytes), "taking memory of the host"); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() { cudaFreeHost(data_); }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) { check_cuda(cudaMalloc(&data_, bytes), "taking memory of the device"); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace ddprun::comm
