#include "worker/tensor/cuda/module/host_ring.h"

#include <algorithm>
#include <cstring>

#include "worker/tensor/cuda/module/check.h"

namespace ddprun::cuda {

PinnedMemory make_pinned(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  return PinnedMemory(static_cast<std::byte*>(memory));
}

HostRing::HostRing(cudaStream_t stream, Memory& memory, std::atomic<std::uint64_t>& synchronizations)
    : stream_(stream),
      memory_(memory),
      synchronizations_(synchronizations),
      pinned_(make_pinned(parts_.size() * part_bytes)) {}

Scratch HostRing::upload_bytes(std::span<const std::byte> bytes) {
  Scratch result(memory_, bytes.size());
  auto* to = result.data<std::byte>();
  while (!bytes.empty()) {
    const std::span<std::byte> slot = take(bytes.size());
    std::memcpy(slot.data(), bytes.data(), slot.size());
    check(cudaMemcpyAsync(to, slot.data(), slot.size(), cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    to += slot.size();
    bytes = bytes.subspan(slot.size());
  }
  return result;
}

std::span<std::byte> HostRing::take(std::size_t bytes) {
  if (used_ == part_bytes) next_part();
  const std::size_t taken = std::min(bytes, part_bytes - used_);
  std::byte* const at = pinned_.get() + part_ * part_bytes + used_;
  used_ += taken;
  return {at, taken};
}

void HostRing::next_part() {
  parts_[part_].read.record(stream_);
  parts_[part_].waiting = true;
  part_ = (part_ + 1) % parts_.size();
  used_ = 0;
  Part& next = parts_[part_];
  if (!next.waiting) return;
  const cudaError_t status = cudaEventQuery(next.read.get());
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    ++synchronizations_;
    check(cudaEventSynchronize(next.read.get()), "cudaEventSynchronize");
  } else {
    check(status, "cudaEventQuery");
  }
  next.waiting = false;
}

}  // namespace ddprun::cuda
