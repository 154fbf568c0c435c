#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "worker/comm/operations/operation.h"

namespace ddprun::comm {

// Numbers the sends and receives of one rank, so that both ends of a message have the same number unless one of them
// has none. Each channel (send or receive, peer, tag) is counted from its first message on or never: a channel that is
// new when the table is full gets no numbers, even if the other end counts.
class TransferNumbers {
 public:
  static constexpr std::size_t max_channels = 4096;  // a program may use a new tag for each message

  // Returns the number of the channel's next message, from 1 on; 0 if it has none.
  std::uint64_t next(const Operation& transfer);

 private:
  bool taken_from_any(const Operation& receive);

  std::map<std::tuple<OpKind, int, int>, std::uint64_t> last_;  // by kind, peer and tag
  std::set<int> tags_from_any_;     // the tags of receives from any source, which may have taken a message of any rank
  bool all_tags_from_any_ = false;  // there are too many to keep
};

}  // namespace ddprun::comm
