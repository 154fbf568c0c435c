#include "worker/comm/backends/nccl/ring_traffic.h"

namespace ddprun::comm {

std::uint64_t RingTraffic::of(const PlannedCall& call) const {
  const std::uint64_t bytes = call.count * size_of(call.dtype), ranks = static_cast<std::uint64_t>(hosts_.ranks());
  switch (call.kind) {
    case OpKind::allreduce:
      return share(2 * (ranks - 1) * bytes / ranks);
    case OpKind::allgather:
    case OpKind::reduce_scatter:  // bytes are those of one part
      return share((ranks - 1) * bytes);
    case OpKind::broadcast:
    case OpKind::reduce:
      return share(bytes);
    case OpKind::send:
      return of_message(call.peer, bytes);
    default:
      return 0;
  }
}

std::uint64_t RingTraffic::of_message(int destination, std::size_t bytes) const {
  return hosts_.host_of(destination) == hosts_.host_of(rank_) ? 0 : bytes;
}

std::uint64_t RingTraffic::share(std::uint64_t bytes_of_link) const {
  if (hosts_.hosts() == 1) return 0;
  return bytes_of_link / static_cast<std::uint64_t>(hosts_.local_size(hosts_.host_of(rank_)));
}

}  // namespace ddprun::comm
