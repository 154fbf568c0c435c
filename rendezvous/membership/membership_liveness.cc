// Which nodes are alive, by their heartbeats.
#include <algorithm>

#include <fmt/format.h>

#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_text.h"

namespace ddprun {

MembershipMessages Membership::beat(Time now, const std::string& id) {
  record_activity(now, id);
  if (const auto node = nodes_.find(id); node != nodes_.end()) node->second.heard_event = liveness_event_;
  return take_messages();
}

void MembershipState::record_activity(Time now, const std::string& id) {
  liveness_clock_.advance(now);
  const auto node = nodes_.find(id);
  if (node == nodes_.end()) return;
  node->second.last_heard = liveness_clock_.elapsed();
  node->second.heard_since_failure = true;
}

StallAwareClock::Duration MembershipState::heartbeat_timeout() const {
  return policy_.heartbeat_timeout();
}

void MembershipState::check_heartbeats(Time now) {
  if (options_.leased) return;
  const auto silent = [&](StallAwareClock::Duration bound) {
    std::vector<std::string> ids;
    for (const auto& [id, node] : nodes_)
      if (liveness_clock_.elapsed() - node.last_heard >= bound) ids.push_back(id);
    return ids;
  };
  if (silent(heartbeat_timeout()).empty()) return;
  // Also removes nodes that have one heartbeat left, so that the loss of a rack leads to one new round.
  const StallAwareClock::Duration interval = policy_.keep_alive_interval;
  const auto lost = silent(std::max(heartbeat_timeout() - interval, std::min(heartbeat_timeout(), 2 * interval)));
  const std::string bound = duration_text(std::chrono::duration_cast<std::chrono::milliseconds>(heartbeat_timeout()));
  const Node& one = nodes_.at(lost.front());
  const std::string first = one.info.host;
  const std::string ranks = ranks_text(round_, one.member ? one.rank : std::nullopt);
  const std::string others = lost.size() > 1 ? fmt::format(" and {} more were", lost.size() - 1) : " was";
  post(lost, NodeDropped{.text = fmt::format(
                             "the rendezvous received nothing from this node for {} and counts it as lost", bound)});
  remove(now, lost,
         fmt::format("node {}{} lost: no heartbeat for {}, frozen or cut off{}", first, others, bound, ranks),
         Pending::consequence);
}

// The time at which the node with the oldest heartbeat counts as lost.
std::optional<MembershipState::Time> MembershipState::next_heartbeat_deadline(Time now) const {
  if (options_.leased || nodes_.empty() || !liveness_clock_.reliable()) return std::nullopt;
  const auto oldest = std::min_element(nodes_.begin(), nodes_.end(), [](const auto& a, const auto& b) {
    return a.second.last_heard < b.second.last_heard;
  });
  return now + (oldest->second.last_heard + heartbeat_timeout() - liveness_clock_.elapsed());
}

// A member that has missed a heartbeat may be the cause of the failures seen elsewhere: judge once it sends a heartbeat
// again or counts as lost.
bool MembershipState::any_member_suspect() const {
  const auto bound = 2 * StallAwareClock::Duration(policy_.keep_alive_interval);
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    const Node& node = entry.second;
    const bool silent =
        options_.leased ? !node.heard_since_failure : liveness_clock_.elapsed() - node.last_heard > bound;
    return node.member && !node.failed && !node.succeeded && silent;
  });
}

bool MembershipState::all_members_heard_since(std::uint64_t event) const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const auto& entry) { return !entry.second.member || entry.second.heard_event >= event; });
}

}  // namespace ddprun
