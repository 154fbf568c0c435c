#include "rendezvous/membership/node_round.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/error.h"
#include "rendezvous/membership/worker_names.h"

namespace ddprun {

void NodeRound::adopt(const Round& round, const char* what) {
  const auto& self = round.members.at(static_cast<std::size_t>(round.self));
  if (self.node_id != node_)
    throw make_error(Errc::protocol, "{} {} identifies this node as {}", what, round.generation, self.host);
  round_ = round;
  end();
}

void NodeRound::proposed(const Round& round) {
  adopt(round, "generation");
  store_port_ = 0;
}

void NodeRound::changed(const RoundChanged& change) {
  adopt(change.round, "a change of generation");
  if (change.joins(round_->self)) store_port_ = 0;
  runs_ = true;
}

const Round* NodeRound::started(const SessionStarted& frame) {
  if (!round_ || round_->generation != frame.generation) return nullptr;
  round_->master_addr = frame.master_addr;
  round_->master_port = frame.master_port;
  for (auto& member : round_->members) name_workers(member, round_->group_generation);
  runs_ = true;
  return &*round_;
}

bool NodeRound::resumed(const RoundResumed& frame) {
  if (!kept_ || round_->generation != frame.generation) return false;
  end();
  runs_ = true;
  return true;
}

bool NodeRound::replaced(const WorkersReplaced& frame) {
  if (!round_ || round_->generation != frame.generation) return false;
  round_->restarts_used = frame.restarts_used;
  round_->group_generation = frame.group_generation;
  rename_replaced(*round_, frame);
  return true;
}

void NodeRound::not_replaced(const ReplacementRefused& frame) {
  if (round_ && round_->generation == frame.generation) end();
}

std::chrono::milliseconds NodeRound::session_lost(Time now, Time known_at) {
  const bool kept = std::exchange(kept_, false);
  if (std::exchange(runs_, false))
    lease_end_ = known_at + heartbeat_timeout_;
  else if (!kept)
    lease_end_ = {};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(lease_end_ - now);
  return std::max(std::chrono::milliseconds(0), left);
}

bool NodeRound::keep(bool done) {
  if (!round_) return false;
  kept_ = true;
  done_ = done;
  return true;
}

std::optional<FormerRound> NodeRound::former() const {
  if (!round_) return std::nullopt;
  FormerRound former{.generation = round_->generation,
                     .group_rank = round_->self,
                     .restarts_used = round_->restarts_used,
                     .nodes = 0,
                     .first = {},
                     .master_addr = {},
                     .workers = {}};
  if (!kept_) return former;
  former.nodes = static_cast<int>(round_->members.size());
  former.first = round_->members.front().node_id;
  former.master_addr = round_->master_addr;
  former.master_port = round_->master_port;
  former.group_generation = round_->group_generation;
  former.workers = round_->members.at(static_cast<std::size_t>(round_->self)).workers;
  former.store_port = store_port_;
  former.done = done_;
  return former;
}

// The nodes of the round that goes on are those that this node knows, or some of them.
std::optional<Round> NodeRound::electorate(const RoundResumed& resumed) const {
  Round round = *round_;
  round.electorate = resumed.electorate.version;
  round.confirmed = resumed.confirmed;
  const auto& nodes = resumed.electorate.nodes;
  std::erase_if(round.members, [&](const auto& one) { return std::ranges::find(nodes, one.node_id) == nodes.end(); });
  return round.members.size() == nodes.size() ? std::optional(std::move(round)) : std::nullopt;
}

}  // namespace ddprun
