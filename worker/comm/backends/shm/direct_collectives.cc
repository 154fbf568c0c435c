#include "worker/comm/backends/shm/direct_collectives.h"

#include <cstring>

#include "worker/comm/backends/shm/slices.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {

// Publishes no handle for an all_to_all in place: this rank would overwrite its input while others read it.
bool DirectCollectives::publish_handle(const Collective& collective) {
  const auto& operation = collective.operation;
  if (!has_known_parts(operation)) return false;
  if (operation.kind == OpKind::all_to_all && collective.input.data == collective.output.data) return false;
  const auto handle = own_regions_.handle_of(collective.input);
  if (!handle.reachable()) return false;
  std::memcpy(ring_.payload(sizeof handle), &handle, sizeof handle);
  return true;
}

void DirectCollectives::execute(const Collective& collective) {
  map_inputs(collective);
  if (collective.operation.kind == OpKind::allreduce) {
    allreduce(collective);
  } else {
    inputs_.write_output(collective, rank_);
  }
  ring_.barrier(collective.timeout);
}

void DirectCollectives::map_inputs(const Collective& collective) {
  for_each_peer(ranks_, rank_, [&](int r) {
    if (ring_.payload_kind(r) != PayloadKind::region) return;  // in a broadcast, only the root has an input
    RegionHandle handle;
    std::memcpy(&handle, ring_.payload_from(r, sizeof handle), sizeof handle);
    inputs_[r] = peer_regions_.map(r, handle);
  });
  inputs_[rank_] = collective.input.data;
}

// Every rank reduces its slice of all buffers and writes the result into all of them.
void DirectCollectives::allreduce(const Collective& collective) {
  const auto dtype = collective.output.dtype;
  const auto slice = slice_of_rank(collective.output.count, dtype, ranks_, rank_);
  const auto inputs = inputs_.from(slice.begin, dtype);
  // In an allreduce, every rank's input is its output too.
  for (std::size_t r = 0; r < inputs.size(); ++r) outputs_[r] = const_cast<void*>(inputs[r]);
  reduce_all(collective.operation.op, dtype, outputs_, inputs, slice.count());
}

}  // namespace ddprun::comm
