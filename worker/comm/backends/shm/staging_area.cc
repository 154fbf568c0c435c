#include "worker/comm/backends/shm/staging_area.h"

#include "common/rounding.h"

namespace ddprun::comm {
namespace {

std::size_t whole_lines(std::size_t bytes) {
  return round_up(bytes, cache_line_bytes);
}

}  // namespace

StagingArea::Places StagingArea::places_of(const Operation& operation) const {
  std::size_t needed = operation.count * size_of(operation.dtype), space = layout_.section_bytes();
  switch (operation.kind) {
    case OpKind::allreduce:
      needed = needed / static_cast<std::size_t>(layout_.ranks()) + cache_line_bytes;  // the largest slice
      break;
    case OpKind::reduce_scatter:
      break;
    case OpKind::reduce:
    case OpKind::broadcast:
    case OpKind::allgather:
      space = layout_.slot_bytes();
      break;
    default:
      return {};
  }
  needed = whole_lines(needed);
  if (operation.unequal() || needed == 0 || 2 * needed > space) return {};
  return {needed, space / needed};
}

}  // namespace ddprun::comm
