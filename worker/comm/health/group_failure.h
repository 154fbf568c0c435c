#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace ddprun::comm {

// The reason why a group of ranks ended. Ranks publish it under the group's failure key in the store; only the first
// one that is set counts, so every rank reports the same. A plain value.
struct GroupFailure {
  Errc code = Errc::peer_lost;
  std::string message;
  std::vector<int> lost{};  // ranks that died, or are taken for frozen or cut off
  friend bool operator==(const GroupFailure&, const GroupFailure&) = default;
};

std::string encode(const GroupFailure& failure);
// Text that encode() did not make becomes the message of a lost peer.
GroupFailure decode_group_failure(std::string_view text);

// The failure of a rank whose process is gone, in the same words whether the store, its host or another rank reports
// it. identity: "pid 42 on host b".
GroupFailure failure_by_loss(int rank, const std::string& identity);

}  // namespace ddprun::comm
