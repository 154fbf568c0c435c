#include "worker/comm/backends/shm/staging_area.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t usual_chunk = std::size_t{256} * 1024;
// A root of a broadcast writes while the others read. With smaller chunks they begin sooner: 256 KiB take 19 us in
// place of 27. With fewer processors than ranks each phase costs more than that: 4 ranks on two take 43 us in place
// of 40.
constexpr std::size_t broadcast_chunk = std::size_t{64} * 1024;

// Returns whether each rank has a section of its own in the slots.
bool uses_sections(OpKind kind) {
  switch (kind) {
    case OpKind::allreduce:
    case OpKind::reduce_scatter:
    case OpKind::scatter:
    case OpKind::all_to_all:
      return true;
    default:
      return false;
  }
}

}  // namespace

// An operation whose parts differ in size uses the largest places, as its ranks may know only their own parts.
StagingArea::Places StagingArea::places_of(const Operation& operation) const {
  const auto ranks = static_cast<std::size_t>(layout_.ranks());
  const bool sections = uses_sections(operation.kind);
  const auto space = sections ? layout_.section_bytes() : layout_.slot_bytes();
  const auto of_slot = operation.kind == OpKind::broadcast && ranks_run_together_ ? broadcast_chunk : usual_chunk;
  const auto chunk = sections ? of_slot / ranks / cache_line_bytes * cache_line_bytes : of_slot;
  const auto largest = std::min(space, std::max(chunk, cache_line_bytes));
  auto needed = written_bytes(operation, operation.count * size_of(operation.dtype));
  if (operation.unequal() || needed == 0 || needed > largest) needed = largest;
  const auto bytes = round_up(needed, cache_line_bytes);
  const auto count = space / bytes;
  // An allreduce of one chunk has three phases: with a multiple of three it would use only every third place.
  return {bytes, operation.kind == OpKind::allreduce && count % 3 == 0 ? count - 1 : count};
}

}  // namespace ddprun::comm
