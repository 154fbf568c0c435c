#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ddprun/worker/comm/backends/gloo/links.h"
#include "ddprun/worker/comm/backends/gloo/mesh_context.h"
#include "ddprun/worker/comm/execution/transport.h"

// The collectives over a MeshContext. Blocking, one at a time; as many of these as operations are to be under way at
// once. They throw what Gloo throws.
//
// The tag of every message holds the operation's number, so that operations under way at once keep apart, and its
// signature: ranks that call different operations must fail rather than mix their bytes up, and so their messages never
// meet and the operation times out instead.
namespace ddprun::comm {

class GlooCollectives {
 public:
  GlooCollectives(std::shared_ptr<MeshContext> context, Links links) : context_(std::move(context)), links_(links) {}

  // Throws Errc::mismatch naming both when the rank before this one calls something else.
  void compare_calls(const Collective& collective);
  void allreduce(const Collective& collective);
  void reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void allgather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void barrier(const Collective& collective);

 private:
  void compare_parts(const Collective& collective);
  void allreduce_by_exchange(const Collective& collective);
  void allreduce_by_parts(const Collective& collective);
  void allreduce_by_ring(const Collective& collective);

  const std::shared_ptr<MeshContext> context_;
  const Links links_;
  std::vector<std::byte> scratch_;  // kept: most programs repeat the same few sizes
};

// Slots for messages of our own; Gloo's collectives use those whose highest byte is below 0x10.
std::uint64_t collective_slot(const Collective& collective, std::uint32_t step);
std::uint64_t transfer_slot(const Operation& operation);

}  // namespace ddprun::comm
