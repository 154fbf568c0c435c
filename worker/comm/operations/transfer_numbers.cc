#include "worker/comm/operations/transfer_numbers.h"

#include "worker/comm/process_group.h"

namespace ddprun::comm {

std::uint64_t TransferNumbers::next(const Operation& transfer) {
  if (transfer.kind == OpKind::recv && taken_from_any(transfer)) return 0;
  const std::tuple channel(transfer.kind, transfer.peer, transfer.tag);
  if (last_.size() == max_channels && !last_.contains(channel)) return 0;
  return ++last_[channel];
}

bool TransferNumbers::taken_from_any(const Operation& receive) {
  if (receive.peer == any_source) {
    if (tags_from_any_.size() < max_channels)
      tags_from_any_.insert(receive.tag);
    else
      all_tags_from_any_ = true;
  }
  return all_tags_from_any_ || tags_from_any_.contains(receive.tag);
}

}  // namespace ddprun::comm
