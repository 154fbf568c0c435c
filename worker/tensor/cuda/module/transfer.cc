#include "worker/tensor/cuda/module/check.h"
#include "worker/tensor/cuda/module/device.h"
#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {
namespace {

cudaStream_t stream_of(const DeviceContext& device, Queue queue) {
  switch (queue) {
    case Queue::compute:
      return device.compute.get();
    case Queue::communication:
      return device.communication.get();
    case Queue::copies:
      return device.copies.get();
  }
  return nullptr;
}

cudaMemcpyKind kind_of(Direction direction) {
  switch (direction) {
    case Direction::to_device:
      return cudaMemcpyHostToDevice;
    case Direction::to_host:
      return cudaMemcpyDeviceToHost;
    case Direction::on_device:
      return cudaMemcpyDeviceToDevice;
  }
  return cudaMemcpyDefault;
}

// --- memory

void allocate(DeviceContext& device, std::size_t bytes, void** memory) {
  *memory = device.memory.allocate(bytes);
}

void release(DeviceContext* device, void* memory, std::size_t bytes) {
  device->memory.release(memory, bytes);
}

void memory_facts(DeviceContext& device, DeviceMemoryFacts* facts) {
  *facts = device.memory.facts();
}

Outcome allocate_pinned_memory(std::size_t bytes, void** memory) {
  return outcome_of([&] { *memory = make_pinned(bytes).release(); });
}

void release_pinned(void* memory) {
  FreePinned{}(static_cast<std::byte*>(memory));
}

bool is_pinned(const void* memory) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeHost;
}

void copy_bytes(DeviceContext& device, Queue queue, Direction direction, void* to, const void* from,
                std::size_t bytes) {
  if (bytes == 0) return;
  // The driver waits for the end of a copy into memory that is not page-locked, and may wait for the queue before it
  // copies from such memory.
  if (direction != Direction::on_device && !is_pinned(direction == Direction::to_host ? to : from))
    ++device.synchronizations;
  check(cudaMemcpyAsync(to, from, bytes, kind_of(direction), stream_of(device, queue)), "cudaMemcpyAsync");
}

Outcome copy_peer(DeviceContext* to_device, void* to, DeviceContext* from_device, const void* from, std::size_t bytes) {
  return outcome_of([&] {
    if (bytes == 0) return;
    Event begin = [&] {
      make_current(*to_device);
      return Event(Event::Use::order);
    }();
    begin.record(to_device->stream());
    make_current(*from_device);
    Event end(Event::Use::order);
    check(cudaStreamWaitEvent(from_device->stream(), begin.get(), cudaEventWaitDefault), "cudaStreamWaitEvent");
    check(cudaMemcpyPeerAsync(to, to_device->ordinal, from, from_device->ordinal, bytes, from_device->stream()),
          "cudaMemcpyPeerAsync");
    try {
      end.record(from_device->stream());
      check(cudaStreamWaitEvent(to_device->stream(), end.get(), cudaEventWaitDefault), "cudaStreamWaitEvent");
    } catch (...) {
      cudaStreamSynchronize(from_device->stream());  // nothing else keeps the memory until the copy has ended
      throw;
    }
  });
}

// --- order

void order_queues(DeviceContext& device, Queue earlier, Queue later) {
  if (earlier != later) order(stream_of(device, earlier), stream_of(device, later));
}

void synchronize(DeviceContext& device, Queue queue) {
  ++device.synchronizations;
  check(cudaStreamSynchronize(stream_of(device, queue)), "cudaStreamSynchronize");
}

// Returns whether what was asked for is there; throws what has failed.
bool is_ready(cudaError_t status, const char* operation) {
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(status, operation);
  return true;
}

void is_idle(DeviceContext& device, Queue queue, bool* idle) {
  *idle = is_ready(cudaStreamQuery(stream_of(device, queue)), "cudaStreamQuery");
}

void* stream(DeviceContext* device, Queue queue) {
  return stream_of(*device, queue);
}

// --- events

void create_event(DeviceContext&, void** event) {
  *event = Event(Event::Use::time).release();
}

void destroy_event(void* event) {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void record_event(DeviceContext& device, Queue queue, void* event) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(event), stream_of(device, queue)), "cudaEventRecord");
}

Outcome event_reached(void* event, bool* reached) {
  return outcome_of([&] { *reached = is_ready(cudaEventQuery(static_cast<cudaEvent_t>(event)), "cudaEventQuery"); });
}

Outcome elapsed(void* from, void* to, double* seconds) {
  return outcome_of([&] {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)),
          "cudaEventElapsedTime");
    *seconds = milliseconds / 1e3;
  });
}

}  // namespace

void add_memory(DeviceApi& api) {
  api.allocate = guarded<allocate>;
  api.release = release;
  api.memory_facts = guarded<memory_facts>;
  api.allocate_pinned = allocate_pinned_memory;
  api.release_pinned = release_pinned;
  api.copy_bytes = guarded<copy_bytes>;
  api.copy_peer = copy_peer;
}

void add_order(DeviceApi& api) {
  api.order = guarded<order_queues>;
  api.synchronize = guarded<synchronize>;
  api.is_idle = guarded<is_idle>;
  api.stream = stream;
  api.create_event = guarded<create_event>;
  api.destroy_event = destroy_event;
  api.record_event = guarded<record_event>;
  api.event_reached = event_reached;
  api.elapsed = elapsed;
}

}  // namespace ddprun::cuda
