#pragma once

#include <string>
#include <variant>
#include <vector>

#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

struct JoinRefused {  // the node is no part of the job; its session ends
  std::string text;
};
struct NodeDropped {  // the node counts as lost; its session ends
  std::string text;
  bool may_return = true;  // it may join again
};

// What a Membership wants said. In RoundProposed and RoundStarted, Round::self is left at 0: the receiver's place in
// `to` is its index in Round::members, so that one encoding serves all.
struct MembershipMessage {
  using What = std::variant<JoinRefused, NodeDropped, RendezvousWaiting, RoundProposed, RoundStarted, JobEnded>;
  std::vector<std::string> to;  // node ids
  What what;
};
using MembershipMessages = std::vector<MembershipMessage>;

}  // namespace ddprun
