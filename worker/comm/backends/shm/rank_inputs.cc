#include "worker/comm/backends/shm/rank_inputs.h"

#include "worker/comm/backends/shm/peer_copy.h"

namespace ddprun::comm {
namespace {

// Copies rank r's part of the output from that rank's input, offset bytes from its start. A rank's own may lie in
// place.
void copy_part(const Collective& collective, int r, const void* input, std::size_t offset) {
  const Span to = collective.output_part(r);
  const auto* const part = static_cast<const std::byte*>(input) + offset;
  if (to.count > 0 && to.data != part) copy_from_peer(to.data, part, to.bytes(), collective.output.bytes());
}

}  // namespace

std::span<const void* const> RankInputs::shift(std::size_t first, DType dtype) {
  for (std::size_t r = 0; r < inputs_.size(); ++r)
    shifted_[r] = static_cast<const std::byte*>(inputs_[r]) + first * size_of(dtype);
  return shifted_;
}

void RankInputs::write_output(const Collective& collective, int rank) {
  const auto& operation = collective.operation;
  const auto op = operation.op;
  const auto count = operation.count;
  const auto bytes = count * size_of(operation.dtype);
  const int root = operation.peer;
  const auto& output = collective.output;
  switch (operation.kind) {
    case OpKind::allreduce:
      return reduce(op, 0, output);
    case OpKind::reduce:
      if (rank == root) reduce(op, 0, {output.data, count, operation.dtype});
      return;
    case OpKind::reduce_scatter:
      return reduce(
          op,
          operation.unequal() ? collective.layout->input_parts->offset(rank) : static_cast<std::size_t>(rank) * count,
          output);
    case OpKind::broadcast:
      if (rank != root) copy_from_peer(output.data, inputs_[static_cast<std::size_t>(root)], bytes, bytes);
      return;
    case OpKind::allgather:
      return copy_parts_of_peers(collective, rank, 0);
    case OpKind::all_to_all:
      return copy_parts_of_peers(collective, rank, static_cast<std::size_t>(rank) * bytes);
    default:
      return;
  }
}

// Part r of the output comes from rank r's input, offset bytes from its start.
void RankInputs::copy_parts_of_peers(const Collective& collective, int rank, std::size_t offset) {
  for (int r = 0; r < static_cast<int>(inputs_.size()); ++r) {
    if (r != rank) copy_part(collective, r, inputs_[static_cast<std::size_t>(r)], offset);
  }
}

void copy_own_part(const Collective& collective, int rank) {
  const auto kind = collective.operation.kind;
  if (kind == OpKind::allgather) copy_part(collective, rank, collective.input.data, 0);
  if (kind != OpKind::all_to_all) return;
  copy_part(collective, rank, collective.input.data,
            static_cast<std::size_t>(rank) * collective.output_part(rank).bytes());
}

}  // namespace ddprun::comm
