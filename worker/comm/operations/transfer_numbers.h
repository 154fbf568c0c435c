#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "ddprun/worker/comm/operations/operation.h"

namespace ddprun::comm {

// Numbers the sends and receives of one rank so that the two ends of a message have the same, or at least one of them
// has none. Each way (send or receive, peer, tag) is counted from its first message on or never: one that is new when
// so many are counted gets no numbers, however the other end counts.
class TransferNumbers {
 public:
  static constexpr std::size_t most_ways = 4096;  // a program may have a new tag for each message

  // Of the next message of its way, from 1 on; 0: unknown.
  std::uint64_t next(const Operation& transfer);

 private:
  bool taken_from_any(const Operation& receive);

  std::map<std::tuple<OpKind, int, int>, std::uint64_t> last_;  // by kind, peer and tag
  std::set<int> tags_from_any_;                                 // of receives that may have taken any rank's number
  bool all_tags_from_any_ = false;                              // there are too many of them
};

}  // namespace ddprun::comm
