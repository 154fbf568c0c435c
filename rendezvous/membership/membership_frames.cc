#include "rendezvous/membership/membership_frames.h"

#include <algorithm>
#include <concepts>
#include <type_traits>
#include <variant>

namespace ddprun {
namespace {

struct FrameApplier {
  Membership& membership;
  FrameTimes times;
  const std::string& node;

  MembershipMessages operator()(SessionBeat&) const { return membership.beat(times.now, node); }
  MembershipMessages operator()(SessionReady& frame) const {
    return membership.ready(times.now, node, frame.generation, frame.worker_store_port);
  }
  MembershipMessages operator()(SessionSuccess& frame) const {
    return membership.success(times.now, node, frame.generation);
  }
  MembershipMessages operator()(SessionPreempted& frame) const {
    return membership.preempted(times.now, node, frame.generation);
  }
  MembershipMessages operator()(SessionNode& frame) const {
    return membership.report(times.now, node, frame.generation, frame.report);
  }
  MembershipMessages operator()(SessionFailure& frame) const {
    for (auto& failure : frame.failures) {
      const std::int64_t age = std::max<std::int64_t>(0, frame.sent_us - failure.time_us);
      failure.time_us = std::max<std::int64_t>(0, times.wall_clock_us - age);
    }
    return membership.failure(times.now, node, frame.generation, frame.failures, frame.survivors);
  }
  MembershipMessages operator()(SessionRecovery& frame) const {
    return membership.recovery_answered(times.now, node, frame.generation, frame.refusal);
  }
  MembershipMessages operator()(WorkersRecoverable& frame) const {
    return membership.recoverable(times.now, node, frame.generation, frame.able);
  }
  template <class Other>
  MembershipMessages operator()(Other&) const {
    return {};
  }
};

}  // namespace

bool needs_decision(const NodeFrame& frame) {
  return std::visit(
      []<class Frame>(const Frame&) {
        constexpr bool of_the_session = std::is_same_v<Frame, SessionBeat> || std::is_same_v<Frame, SessionSeen>;
        return !of_the_session && !std::is_same_v<Frame, SessionNode> && !std::constructible_from<RelayMessage, Frame>;
      },
      frame);
}

MembershipMessages apply_frame(Membership& membership, FrameTimes times, const std::string& node, NodeFrame& frame) {
  return std::visit(FrameApplier{membership, times, node}, frame);
}

}  // namespace ddprun
