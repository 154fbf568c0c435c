#include "worker/comm/backends/shm/rank_inputs.h"

#include "worker/comm/backends/shm/peer_copy.h"

namespace ddprun::comm {

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
      return copy_blocks(collective, 0);
    case OpKind::all_to_all:
      return copy_blocks(collective, static_cast<std::size_t>(rank) * bytes);
    default:
      return;
  }
}

// Part r of the output comes from rank r's input, offset bytes from its start.
void RankInputs::copy_blocks(const Collective& collective, std::size_t offset) {
  for (std::size_t r = 0; r < inputs_.size(); ++r) {
    const Span to = collective.output_part(static_cast<int>(r));
    const auto* const block = static_cast<const std::byte*>(inputs_[r]) + offset;
    // This rank's own may lie in place.
    if (to.count > 0 && to.data != block) copy_from_peer(to.data, block, to.bytes(), collective.output.bytes());
  }
}

}  // namespace ddprun::comm
