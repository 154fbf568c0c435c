#include "worker/tensor/cuda/module/stream.h"

#include "worker/tensor/cuda/module/check.h"

namespace ddprun::cuda {

Stream::Stream(Priority priority) {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority == Priority::high ? greatest : least),
        "cudaStreamCreateWithPriority");
  stream_.reset(stream);
}

Event::Event(Use use) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, use == Use::time ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
  event_.reset(event);
}

void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(get(), stream), "cudaEventRecord");
}

void order(cudaStream_t earlier, cudaStream_t later) {
  Event event(Event::Use::order);
  event.record(earlier);
  // The driver keeps the event until the wait is over.
  check(cudaStreamWaitEvent(later, event.get(), cudaEventWaitDefault), "cudaStreamWaitEvent");
}

}  // namespace ddprun::cuda
