// Streams and events of the CUDA runtime.
#include <algorithm>
#include <chrono>

#include "worker/cuda/emulator/runtime_call.h"

namespace ddprun::cuda::emulator {
namespace {

// The order between other streams and the default one is not emulated.
cudaError_t create_stream(const char* function, cudaStream_t* stream, unsigned int flags) {
  return run(function, cudaErrorUnknown, [&](const Call& call) {
    if (flags != cudaStreamNonBlocking) return cudaErrorNotSupported;
    *stream = call.machine().add_stream(call.machine().current_device());
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace ddprun::cuda::emulator

using namespace ddprun::cuda::emulator;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int) {
  return create_stream("cudaStreamCreateWithPriority", pStream, flags);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  return create_stream("cudaStreamCreateWithFlags", pStream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return run("cudaDeviceGetStreamPriorityRange", cudaErrorUnknown, [&](const Call&) {
    *leastPriority = 0;
    *greatestPriority = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return query("cudaStreamDestroy", cudaErrorUnknown, [&](const Call& call) {
    if (stream == nullptr || call.machine().find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    call.machine().work_until([&] { return stream->operations.empty(); });
    call.machine().remove_stream(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return run("cudaStreamSynchronize", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr) return cudaErrorInvalidResourceHandle;
    call.machine().work_until([&] { return queue->operations.empty(); });
    return call.machine().device(queue->device).fault;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return run("cudaStreamQuery", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr) return cudaErrorInvalidResourceHandle;
    call.machine().work_some();
    return queue->operations.empty() ? call.machine().device(queue->device).fault : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return run("cudaStreamWaitEvent", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr || !call.machine().has_event(event)) return cudaErrorInvalidResourceHandle;
    const auto wait = [queue, state = event->state, awaited = event->state->recorded] {
      if (state->reached < awaited) return false;
      queue->time = std::max(queue->time, state->time);
      return true;
    };
    call.machine().enqueue(queue, wait, Duration::none);
    return cudaSuccess;
  });
}

// --- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return run("cudaEventCreateWithFlags", cudaErrorUnknown, [&](const Call& call) {
    *event = call.machine().add_event(call.machine().current_device(), (flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return run("cudaEventRecord", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr || !call.machine().has_event(event) || queue->device != event->device)
      return cudaErrorInvalidResourceHandle;
    const auto reach = [queue, state = event->state, recorded = ++event->state->recorded] {
      state->reached = recorded;
      state->time = queue->time;
      return true;
    };
    call.machine().enqueue(queue, reach, Duration::none);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return run("cudaEventQuery", cudaErrorUnknown, [&](const Call& call) {
    if (!call.machine().has_event(event)) return cudaErrorInvalidResourceHandle;
    call.machine().work_some();
    return event->state->reached == event->state->recorded ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return run("cudaEventSynchronize", cudaErrorUnknown, [&](const Call& call) {
    if (!call.machine().has_event(event)) return cudaErrorInvalidResourceHandle;
    call.machine().work_until([&] { return event->state->reached == event->state->recorded; });
    return call.machine().device(event->device).fault;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return run("cudaEventElapsedTime", cudaErrorUnknown, [&](const Call& call) {
    if (!call.machine().has_event(start) || !call.machine().has_event(end) || !start->is_timed || !end->is_timed)
      return cudaErrorInvalidResourceHandle;
    for (const cudaEvent_t event : {start, end}) {
      if (event->state->recorded == 0) return cudaErrorInvalidResourceHandle;
      if (event->state->reached != event->state->recorded) return cudaErrorNotReady;
    }
    *ms = std::chrono::duration<float, std::milli>(end->state->time - start->state->time).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return query("cudaEventDestroy", cudaErrorUnknown, [&](const Call& call) {
    return call.machine().remove_event(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}
}  // extern "C"
