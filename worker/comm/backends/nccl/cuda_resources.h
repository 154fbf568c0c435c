#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "common/deadline.h"
#include "worker/comm/backends/nccl/cuda_check.h"
#include "worker/comm/backends/nccl/nccl_api.h"

namespace ddprun::comm {

// The PCI bus id of a device, such as "0000:01:00.0".
inline std::string bus_id_of(int device) {
  char id[32] = "";
  check_cuda(api().cudaDeviceGetPCIBusId(id, sizeof id, device), "cudaDeviceGetPCIBusId", device);
  return id;
}

// Makes a device the current one of this thread for the lifetime of the object.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check_cuda(api().cudaGetDevice(&previous_), "cudaGetDevice", device);
    check_cuda(api().cudaSetDevice(device), "cudaSetDevice", device);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() { api().cudaSetDevice(previous_); }

 private:
  int previous_ = 0;
};

// A CUDA stream of a device, independent of the default one. REQUIRES: the device is current where it is made.
class Stream {
 public:
  explicit Stream(int device) : device_(device) {
    check_cuda(api().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", device);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { api().cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  int device() const { return device_; }
  // Waits until all its work is done or has failed; false when the deadline passes first.
  bool await_idle(Deadline deadline) const noexcept {
    constexpr std::chrono::microseconds poll_interval(50);
    while (api().cudaStreamQuery(stream_) == cudaErrorNotReady) {
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(poll_interval);
    }
    return true;
  }

 private:
  const int device_;
  cudaStream_t stream_ = nullptr;
};

// An event of a device. REQUIRES: the device is current where it is made.
class Event {
 public:
  explicit Event(int device) : device_(device) {
    check_cuda(api().cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags", device);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { api().cudaEventDestroy(event_); }

  void record(cudaStream_t stream) { check_cuda(api().cudaEventRecord(event_, stream), "cudaEventRecord", device_); }
  void record(const Stream& stream) { record(stream.get()); }
  cudaEvent_t get() const { return event_; }
  // Work that is queued on the stream from now on begins once the event is reached.
  void precede(cudaStream_t stream) const {
    check_cuda(api().cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent", device_);
  }
  void precede(const Stream& stream) const { precede(stream.get()); }
  // Returns whether all work before it is done. Throws Errc::io when any of that failed.
  bool reached() const {
    const auto result = api().cudaEventQuery(event_);
    if (result == cudaErrorNotReady) return false;
    check_cuda(result, "cudaEventQuery", device_);
    return true;
  }

 private:
  const int device_;
  cudaEvent_t event_ = nullptr;
};

// Records an event (cudaEvent_t) that another object owns.
inline void record_event(void* event, const Stream& stream) {
  check_cuda(api().cudaEventRecord(static_cast<cudaEvent_t>(event), stream.get()), "cudaEventRecord", stream.device());
}

// Page-locked memory of the host: copies between it and a device are asynchronous. REQUIRES: the device is current
// where it is made.
class PinnedMemory {
 public:
  PinnedMemory(int device, std::size_t bytes) {
    check_cuda(api().cudaMallocHost(&data_, bytes), "cudaMallocHost", device);
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() { api().cudaFreeHost(data_); }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace ddprun::comm
