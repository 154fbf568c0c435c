#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "ddprun/common/deadline.h"
#include "ddprun/common/error.h"
#include "ddprun/worker/comm/backends/nccl/nccl_api.h"
#include "ddprun/worker/cuda/cuda_error.h"

namespace ddprun::comm {

inline void check_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  const auto advice = meaning_of_cuda_error(result).advice;
  throw make_error(Errc::io, "CUDA: {}: {}{}{}", what, api().cudaGetErrorString(result), advice.empty() ? "" : "; ",
                   advice);
}

// "0000:01:00.0"
inline std::string bus_id_of(int device) {
  char id[32] = "";
  check_cuda(api().cudaDeviceGetPCIBusId(id, sizeof id, device), "querying the PCI bus id");
  return id;
}

// Makes a device the current one of this thread for the lifetime of the object.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check_cuda(api().cudaGetDevice(&previous_), "querying the current device");
    check_cuda(api().cudaSetDevice(device), "setting the device");
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() { api().cudaSetDevice(previous_); }

 private:
  int previous_ = 0;
};

// A CUDA stream, independent of the default one.
class Stream {
 public:
  Stream() { check_cuda(api().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { api().cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
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
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { check_cuda(api().cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { api().cudaEventDestroy(event_); }

  void record(cudaStream_t stream) { check_cuda(api().cudaEventRecord(event_, stream), "recording an event"); }
  void record(const Stream& stream) { record(stream.get()); }
  cudaEvent_t get() const { return event_; }
  // What is queued on the stream from now on begins once the event is reached.
  void precede(const Stream& stream) const {
    check_cuda(api().cudaStreamWaitEvent(stream.get(), event_, 0), "ordering two streams");
  }
  // Whether all work before it is done. Throws Errc::io when any of that failed.
  bool reached() const {
    const auto result = api().cudaEventQuery(event_);
    if (result == cudaErrorNotReady) return false;
    check_cuda(result, "an operation on the device");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Records an event of another owner's (cudaEvent_t).
inline void record_event(void* event, const Stream& stream) {
  check_cuda(api().cudaEventRecord(static_cast<cudaEvent_t>(event), stream.get()), "recording an event");
}

// Page-locked memory of the host: copies between it and a device are asynchronous.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes) {
    check_cuda(api().cudaMallocHost(&data_, bytes), "allocating host memory");
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() { api().cudaFreeHost(data_); }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace ddprun::comm
