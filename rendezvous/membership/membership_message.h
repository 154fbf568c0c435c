#pragma once

#include <string>
#include <variant>
#include <vector>

#include "rendezvous/rendezvous_event.h"

namespace ddprun {

struct JoinRefused {  // the node may not join; its session ends
  std::string text;
};
struct NodeDropped {  // the node counts as lost; its session ends
  std::string text;
  bool may_return = true;  // it may join again
};

// A message from a Membership to nodes. Round::self is 0 in RoundProposed, RoundStarted and RoundChanged: a receiver's
// position in `to` is its index in Round::members, so that the round is encoded once for all receivers.
struct MembershipMessage {
  using What = std::variant<JoinRefused, NodeDropped, RendezvousWaiting, RoundProposed, RoundStarted, RoundChanged,
                            StandbyAsked, RecoveryAsked, WorkersReplaced, ReplacementRefused, LeaveAnswered, JobEnded,
                            WorkersRecoverable, RoundResumed>;
  std::vector<std::string> to;  // node ids
  What what;
};
using MembershipMessages = std::vector<MembershipMessage>;

}  // namespace ddprun
