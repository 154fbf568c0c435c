#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/session_protocol.h"

// These functions apply the frames of a job's nodes to its membership. Pure.
namespace ddprun {

// Returns whether a frame may change what the membership decides.
bool needs_decision(const NodeFrame& frame);

// The times at which a frame came, by the server's clocks.
struct FrameTimes {
  Membership::Time now{};
  std::int64_t wall_clock_us = 0;  // since the epoch
};

// Passes a frame of a node of the job to its membership: a heartbeat, or what the node reports of a round. Returns no
// messages for other frames: those that begin or end a session, of the election of servers and among the agents.
MembershipMessages apply_frame(Membership& membership, FrameTimes times, const std::string& node, NodeFrame& frame);

}  // namespace ddprun
