#include "rendezvous/membership/served_job.h"

#include <algorithm>
#include <concepts>
#include <type_traits>
#include <utility>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include "common/wall_clock.h"
#include "rendezvous/membership/membership_frames.h"

namespace ddprun {
namespace {

// The time after which a server asks the nodes again for their support.
constexpr std::chrono::milliseconds support_pause{100};

Membership::Time now() {
  return Membership::Clock::now();
}

std::int64_t to_us(Membership::Time time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

Membership::Time from_us(std::int64_t us) {
  return Membership::Time(std::chrono::microseconds(us));
}

// A node supports a server for support_bound() at least; the server stops deciding before. It gives up before the nodes
// do.
LeaseBounds lease_bounds(const JobPolicy& policy) {
  return {.support = policy.support_bound() - policy.keep_alive_interval / 4,
          .patience = policy.heartbeat_timeout() - policy.keep_alive_interval / 4};
}

ServerFrame to_frame(RoundStarted&& what) {
  return SessionStarted{.generation = what.round.generation,
                        .master_addr = std::move(what.round.master_addr),
                        .master_port = what.round.master_port};
}
template <class What>
ServerFrame to_frame(What&& what) {
  return std::forward<What>(what);
}

}  // namespace

GatherBounds gather_bounds(const JobPolicy& policy, const ServedJobOptions& options) {
  const auto longest = std::max(policy.heartbeat_timeout() - policy.support_bound(), policy.keep_alive_interval) / 4;
  return {.any = std::min(options.gather, longest),
          .living = std::min(std::max(options.gather, options.gather_living), longest)};
}

ServedJob::ServedJob(boost::asio::io_context& loop, SessionSender& sender, std::weak_ptr<JobOwner> owner,
                     const JobPolicy& policy, const ServedJobOptions& options)
    : sender_(sender),
      owner_(std::move(owner)),
      options_(options),
      membership_(policy, options.membership),
      timer_(loop) {}

void ServedJob::begin() {
  arm();
}

void ServedJob::begin_elected(const ServerName& self, const Electorate& electorate) {
  lease_.emplace(now(), self, lease_bounds(policy()), electorate);
  elected_.emplace(Elected{.gathering = Gathering(gather_bounds(policy(), options_)), .nodes = {}});
  arm();
}

void ServedJob::begin_lease(const std::string& own_node, std::uint64_t earlier) {
  if (lease_) return;
  lease_.emplace(own_node, lease_bounds(policy()), earlier);
  for (const auto& [node, session] : sessions_) announce_server(session);
}

// ---- sessions

bool ServedJob::is_current(SessionId session, const std::string& node) const {
  const auto current = sessions_.find(node);
  return current != sessions_.end() && current->second == session;
}

void ServedJob::join(SessionId session, const SessionJoin& join, const SessionAddresses& addresses) {
  const auto& node = join.node.id;
  const auto before = sessions_.find(node);
  const std::optional<SessionId> superseded = before == sessions_.end() ? std::nullopt : std::optional(before->second);
  sessions_[node] = session;
  if (lease_) announce_server(session);
  if (elected_) {
    if (superseded) sender_.close(*superseded);
    elected_->gathering.came(node);
    elected_->nodes[node] = {join, addresses};
    return;
  }
  decide([this, session, join, addresses, superseded] {
    auto messages = membership_.join(now(), join.node, join.policy, addresses);
    if (superseded && restore_or_close({session, *superseded}, join.node.id, messages))
      node_left(join.node.id, "opened a new session");
    deliver(std::move(messages));
  });
}

// A node's new session replaces its old one, unless the new one was refused: then the old one stays. Returns whether
// it was replaced. Both may have closed before the server decided.
bool ServedJob::restore_or_close(SessionChange both, const std::string& node, MembershipMessages& messages) {
  const auto owner = owner_.lock();
  const auto is_open = [&](SessionId session) { return owner && owner->is_open(session); };
  const bool refused = !messages.empty() && std::holds_alternative<JoinRefused>(messages.front().what);
  if (!refused) {
    if (is_open(both.superseded)) sender_.close(both.superseded);
    return true;
  }
  if (is_open(both.superseded))
    sessions_[node] = both.superseded;
  else
    sessions_.erase(node);
  if (is_open(both.joining)) {
    send(both.joining, std::get<JoinRefused>(std::move(messages.front().what)));
    sender_.close(both.joining);
  }
  messages.erase(messages.begin());
  return false;
}

void ServedJob::session_closed(SessionId session, const std::string& node) {
  if (!is_current(session, node) || deposed()) return;
  sessions_.erase(node);
  if (elected_) elected_->gathering.gone(node);
  if (const auto owner = lease_ ? owner_.lock() : nullptr) owner->node_lost(policy().run_id, node);
  if (elected_) return;
  decide([this, node] {
    // The others need no message of it where the job has ended: then all nodes close their sessions.
    if (!membership_.ended()) node_left(node, "was lost: its connection closed");
    deliver(membership_.session_closed(now(), node, "its connection closed"));
  });
}

void ServedJob::end_sessions(const ServerFrame& why) {
  over_ = true;
  cancel();
  const auto frame = encode(why);
  for (const auto& [node, session] : std::exchange(sessions_, {})) {
    sender_.send(session, frame);
    sender_.close(session);
  }
}

void ServedJob::cancel() {
  timer_.cancel();
  held_.clear();
}

void ServedJob::send(SessionId session, const ServerFrame& frame) {
  sender_.send(session, encode(frame));
}

// ---- frames of nodes

void ServedJob::receive(SessionId session, const std::string& node, NodeFrame frame) {
  if (!is_current(session, node) || deposed()) return;  // it was dropped, or a newer session has taken over
  if (!needs_decision(frame)) return handle(session, node, frame);
  decide([this, session, node, frame = std::move(frame)]() mutable { handle(session, node, frame); });
}

void ServedJob::handle(SessionId session, const std::string& node, NodeFrame& frame) {
  if (const auto* seen = std::get_if<SessionSeen>(&frame)) return acknowledge(node, *seen);
  if (const auto* left = std::get_if<SessionLeave>(&frame)) return leave(session, node, left->reason);
  if (const auto* asked = std::get_if<LeaveRequest>(&frame)) return ask_leave(session, node, asked->reason);
  const bool relayed = std::visit(
      [&]<class Frame>(Frame& one) {
        if constexpr (std::constructible_from<RelayMessage, Frame>)
          relay(relay_.received(node, std::move(one), membership_.running_round()));
        return std::constructible_from<RelayMessage, Frame>;
      },
      frame);
  if (relayed) return;
  if (std::holds_alternative<SessionBeat>(frame)) send(session, ServerBeat{to_us(now())});
  deliver(apply_frame(membership_, {now(), wall_clock_us()}, node, frame));
}

void ServedJob::leave(SessionId session, const std::string& node, const std::string& reason) {
  if (is_current(session, node)) sessions_.erase(node);  // the node may have opened another one since
  if (elected_) elected_->gathering.ended(node);
  sender_.close(session);
  if (lease_) lease_->ended(now(), node);
  node_left(node, "left: " + reason);
  deliver(membership_.leave(now(), node, reason));
}

void ServedJob::ask_leave(SessionId session, const std::string& node, const std::string& reason) {
  if (!is_current(session, node)) return;  // the node has opened another one since
  auto messages = membership_.leave_asked(now(), node, reason);
  if (!membership_.has(node)) node_left(node, "left: " + reason);
  deliver(std::move(messages));
}

// ---- events that are not frames of nodes

void ServedJob::stop(const std::string& who) {
  if (deposed()) return;
  decide([this, who] { deliver(membership_.stop(now(), who)); });
}

void ServedJob::conflict(const std::string& why) {
  decide([this, why] { deliver(membership_.conflict(now(), why)); });
}

void ServedJob::server_leaves(const std::string& why) {
  if (supported()) deliver(membership_.server_leaves(now(), why));
}

JobStatus ServedJob::status() const {
  return membership_.status(now());
}

// ---- the right to decide

bool ServedJob::supported() {
  return !lease_ || lease_->may_decide(now());
}

bool ServedJob::acts() {
  return !deposed() && !elected_ && supported();
}

bool ServedJob::deposed() {
  if (!lease_ || !lease_->is_over(now())) return false;
  if (over_) return true;
  if (const auto owner = owner_.lock()) owner->deposed(policy().run_id);
  return true;
}

// Executes the event once the server has the support of the nodes, after those that wait for it.
void ServedJob::decide(Event event) {
  if (!elected_ && held_.empty() && supported()) return event();
  held_.push_back(std::move(event));
  ask_support();
}

void ServedJob::release_held() {
  while (!held_.empty() && supported()) {
    const auto event = std::move(held_.front());
    held_.pop_front();
    event();
  }
  if (over_) held_.clear();
}

// The nodes acknowledge at once what the server says of itself.
void ServedJob::ask_support() {
  if (now() >= support_asked_ + support_pause) {
    support_asked_ = now();
    for (const auto& [node, session] : sessions_) announce_server(session);
  }
  arm();
}

void ServedJob::announce_server(SessionId session) {
  send(session, SessionServer{.name = lease_->server(), .decides = lease_->may_decide(now()), .sent_us = to_us(now())});
}

void ServedJob::announce_confirmed() {
  const auto confirmed = lease_->take_confirmed();
  if (!confirmed) return;
  const auto frame = encode(ServerFrame{ElectorateConfirmed{*confirmed}});
  for (const auto& [node, session] : sessions_) sender_.send(session, frame);
}

void ServedJob::acknowledge(const std::string& node, const SessionSeen& frame) {
  if (!lease_) return;
  lease_->acknowledged(now(), node, std::min(now(), from_us(frame.sent_us)), frame.known);
  announce_confirmed();
  if (elected_ && lease_->may_decide(now())) gather();
  if (!elected_) release_held();
}

void ServedJob::node_ended(const std::string& node) {
  if (!lease_ || sessions_.contains(node) || deposed()) return;
  lease_->ended(now(), node);
  announce_confirmed();
  if (elected_) elected_->gathering.ended(node);
  if (elected_ && lease_->may_decide(now())) gather();
}

void ServedJob::node_lives(const std::string& node) {
  if (!elected_ || deposed() || !elected_->gathering.heard(node)) return;
  if (lease_->may_decide(now())) gather();
}

// Every set of nodes on which the server decides passes through here.
void ServedJob::adopt(Round& round) {
  if (!lease_) return;
  std::vector<std::string> nodes;
  for (const auto& member : round.members)
    if (member.port != 0) nodes.push_back(member.node_id);
  round.confirmed = lease_->electorate().confirmed();
  round.electorate = lease_->adopt(now(), std::move(nodes));
  if (round.electorate.term == 0) last_first_set_ = round.electorate.number;
}

void ServedJob::adopt(RoundResumed& resumed) {
  const auto* running = membership_.running_round();
  if (!lease_ || !running) return;
  Round round = *running;
  adopt(round);
  resumed.electorate = lease_->electorate().newest();
  resumed.confirmed = round.confirmed;
}

// A majority has come. The other nodes may be on their way.
void ServedJob::gather() {
  if (elected_->gathering.is_complete(now(), lease_->electorate())) return act_elected();
  arm();
}

void ServedJob::act_elected() {
  const auto nodes = std::move(elected_->nodes);
  elected_.reset();
  membership_.await_nodes();
  std::string missing;
  for (const auto& node : lease_->electorate().newest().nodes)
    if (!sessions_.contains(node)) missing += (missing.empty() ? "" : ", ") + node;
  for (const auto& [id, node] : nodes)
    if (sessions_.contains(id)) deliver(membership_.join(now(), node.join.node, node.join.policy, node.addresses));
  deliver(membership_.continue_round(
      now(), fmt::format("the node with the rendezvous server was lost, and this one was elected{}",
                         missing.empty() ? "" : fmt::format(" (missing: {})", missing))));
}

// ---- messages among the agents

void ServedJob::relay(RelayTable::Deliveries deliveries) {
  for (auto& delivery : deliveries) {
    const auto session = sessions_.find(delivery.node);
    if (session == sessions_.end()) continue;
    std::visit([&](auto& one) { send(session->second, std::move(one)); }, delivery.message);
  }
}

void ServedJob::node_left(const std::string& node, const std::string& how) {
  relay(relay_.node_left(node, how));
}

// ---- messages of the membership

void ServedJob::deliver(MembershipMessages messages) {
  for (auto& message : messages) std::visit([&](auto& what) { post(message.to, std::move(what)); }, message.what);
  if (lease_) announce_confirmed();
  if (elected_) return;
  if (membership_.ended() || membership_.empty())
    retire();
  else
    arm();
}

template <class What>
void ServedJob::post(const std::vector<std::string>& to, What what) {
  constexpr bool ends_session = std::is_same_v<What, JoinRefused> || std::is_same_v<What, NodeDropped>;
  if constexpr (std::is_same_v<What, RoundStarted>)
    if (const auto owner = owner_.lock()) owner->round_starts(policy().run_id, what.round.generation);
  constexpr bool per_receiver = std::is_same_v<What, RoundProposed> || std::is_same_v<What, RoundChanged>;
  if constexpr (per_receiver) adopt(what.round);
  if constexpr (std::is_same_v<What, RoundResumed>) adopt(what);
  std::string bytes = encode(to_frame(std::move(what)));
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto session = sessions_.find(to[i]);
    if (session == sessions_.end()) continue;
    if constexpr (per_receiver) set_round_self(bytes, static_cast<int>(i));
    const SessionId id = session->second;
    sender_.send(id, bytes);
    if constexpr (ends_session) {
      sessions_.erase(session);
      sender_.close(id);
      node_left(to[i], "was lost");
    }
  }
  constexpr bool moves_ranks = std::is_same_v<What, RoundStarted> || std::is_same_v<What, RoundChanged>;
  if constexpr (moves_ranks || std::is_same_v<What, RoundResumed>)
    if (const auto* round = membership_.running_round()) relay(relay_.round_started(*round));
}

// ---- time

void ServedJob::arm() {
  const auto when = due();
  if (armed_ && timer_.time() == when) return;
  armed_ = true;
  timer_.run_at(when, [weak = weak_from_this()] {
    const auto self = weak.lock();
    const auto owner = self ? self->owner_.lock() : nullptr;
    if (owner) self->tick();
  });
}

void ServedJob::tick() {
  armed_ = false;
  if (deposed()) return;
  if (elected_) return lease_->may_decide(now()) ? gather() : arm();
  if (!supported()) return ask_support();
  release_held();
  deliver(membership_.tick(now()));
}

Membership::Time ServedJob::due() {
  if (!elected_) return supported() ? membership_.next_tick() : support_asked_ + support_pause;
  const auto due = elected_->gathering.due();
  if (due && !lease_->may_decide(now())) return std::max(*due, now() + support_pause);
  return due.value_or(now() + lease_bounds(policy()).patience);
}

void ServedJob::retire() {
  if (std::exchange(over_, true)) return;
  timer_.run_after(options_.result_grace, [weak = weak_from_this()] {
    const auto self = weak.lock();
    const auto owner = self ? self->owner_.lock() : nullptr;
    if (!owner) return;
    for (const auto& [node, session] : self->sessions_) self->sender_.close(session);
  });
  if (const auto owner = owner_.lock()) owner->ended(policy().run_id);
}

}  // namespace ddprun
