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
  check_cuda(cudaDeviceGetPCIBusId(id, sizeof id, device), "querying the PCI bus id");
  return id;
}

// Makes a device the current one of this thread for the lifetime of the object.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check_cuda(cudaGetDevice(&previous_), "querying the current device");
    check_cuda(cudaSetDevice(device), "setting the device");
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() { cudaSetDevice(previous_); }

 private:
  int previous_ = 0;
};

// A CUDA stream. Work on it begins after the work that the legacy default stream had before.
class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreate(&stream_), "creating a stream"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  // Waits until all its work is done or has failed, or until the deadline.
  void await_idle(Deadline deadline) const noexcept {
    constexpr std::chrono::microseconds poll_interval(50);
    while (cudaStreamQuery(stream_) == cudaErrorNotReady && !deadline.expired())
      std::this_thread::sleep_for(poll_interval);
  }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }

  void record(const Stream& stream) { check_cuda(cudaEventRecord(event_, stream.get()), "recording an event"); }
  // Whether all work before it is done. Throws Errc::io when any of that failed.
  bool reached() const {
    const auto result = cudaEventQuery(event_);
    if (result == cudaErrorNotReady) return false;
    check_cuda(result, "an operation on the device");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Page-locked memory of the host: copies between it and a device are asynchronous.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes) { check_cuda(cudaMallocHost(&data_, bytes), "allocating host memory"); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() { cudaFreeHost(data_); }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) { check_cuda(cudaMalloc(&data_, bytes), "allocating device memory"); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace ddprun::comm
