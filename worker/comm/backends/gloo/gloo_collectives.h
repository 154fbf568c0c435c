#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "worker/comm/backends/gloo/links.h"
#include "worker/comm/backends/gloo/mesh_context.h"
#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// The collectives over a MeshContext, which several instances share. They block; an instance executes one operation at
// a time, so concurrent operations need one instance each. Throws what Gloo throws.
//
// The tag of every message holds the operation's number, so that concurrent operations are kept apart, and its
// signature: messages of ranks that call different operations never match, so that the operation times out instead of
// mixing up data.
class GlooCollectives {
 public:
  GlooCollectives(std::shared_ptr<MeshContext> context, Links links) : context_(std::move(context)), links_(links) {}

  // Throws Errc::mismatch naming both ranks when the previous rank calls something else.
  void compare_calls(const Collective& collective);
  void allreduce(const Collective& collective);
  void reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void allgather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void barrier(const Collective& collective);

 private:
  // Returns whether it is best to send so many bytes to every other rank at once.
  bool fits_exchange(std::size_t bytes) const;
  void compare_parts(const Collective& collective);
  void broadcast_at_once(const Collective& collective);
  void allgather_by_exchange(const Collective& collective);
  void allreduce_by_exchange(const Collective& collective);
  void allreduce_by_parts(const Collective& collective);
  void allreduce_by_ring(const Collective& collective);

  const std::shared_ptr<MeshContext> context_;
  const Links links_;
  std::vector<std::byte> scratch_;  // kept, because most programs repeat a few sizes
};

// Gloo slots for messages that are not of Gloo's own collectives, whose slots have a highest byte below 0x10.
std::uint64_t collective_slot(const Collective& collective, std::uint32_t step);
std::uint64_t transfer_slot(const Operation& operation);

}  // namespace ddprun::comm
