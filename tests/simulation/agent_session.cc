#include "tests/simulation/agent_session.h"

#include <algorithm>
#include <utility>

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

constexpr Duration attempt_timeout = 10s;

}  // namespace

AgentSession::AgentSession(Simulation& simulation, ProcessPtr process, Host& own, Host& endpoint, NodeInfo self,
                           JobPolicy policy, Duration rejoin_timeout, Handler handler)
    : simulation_(simulation),
      process_(std::move(process)),
      own_(own),
      endpoint_(endpoint),
      self_(std::move(self)),
      policy_(std::move(policy)),
      rejoin_timeout_(rejoin_timeout),
      handler_(std::move(handler)),
      join_deadline_(simulation.time.now() + policy_.join_timeout),
      liveness_clock_(policy_.keep_alive_interval) {}

void AgentSession::start() {
  attempt();
}

void AgentSession::send(const NodeFrame& frame) {
  if (const auto* ready = std::get_if<SessionReady>(&frame)) store_port_ = ready->worker_store_port;
  if (established_ && !closed_) connection_->send(Connection::client, {.bytes = encode(frame)});
}

void AgentSession::leave(const std::string& reason) {
  send(SessionLeave{reason});
  close();
}

// A server that does not answer in time may have received the JOIN: the next one is then its second. The invariant
// checker uses the attempt number.
void AgentSession::attempt() {
  if (closed_) return;
  const std::weak_ptr<AgentSession> weak = weak_from_this();
  const int number = ++attempts_;
  connection_ = Connection::dial(simulation_.time, simulation_.random, own_, process_, endpoint_, rendezvous_port,
                                 {.packet =
                                      [weak, number](const Packet& packet) {
                                        const auto self = weak.lock();
                                        if (self && self->attempts_ == number) self->handle_frame(packet);
                                      },
                                  .closed =
                                      [weak, number] {
                                        const auto self = weak.lock();
                                        if (self && self->attempts_ == number) self->closed();
                                      }});
  auto self_now = self_;
  if (kept_) {
    const Round& round = std::get<RoundProposed>(*proposal_).round;
    self_now.former->nodes = static_cast<int>(round.members.size());
    self_now.former->first = round.members.front().node_id;
    self_now.former->master_addr = store_.host;
    self_now.former->master_port = store_.port_or(0);
    self_now.former->group_generation = group_generation_;
    self_now.former->store_port = store_port_;
    self_now.former->done = done_;
  }
  unanswered_ = {simulation_.time.now()};
  connection_->send(Connection::client, {.bytes = encode(NodeFrame{SessionJoin{self_now, policy_}}), .index = number});
  process_->after(attempt_timeout, [weak, number] {
    const auto self = weak.lock();
    if (self && self->attempts_ == number && !self->established_) self->give_up_attempt();
  });
}

void AgentSession::give_up_attempt() {
  ++attempts_;
  connection_->reset(Connection::client);
  if (closed_) return;
  if (simulation_.time.now() >= join_deadline_)
    return fail(rejoining_ ? Errc::connection_lost : Errc::timeout, "no server answers at the endpoint");
  process_->after(simulation_.random.duration(100ms, 1s), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->attempt();
  });
}

void AgentSession::closed() {
  if (closed_) return;
  if (established_) return end_session(Errc::connection_lost, "the server closed the connection");
  give_up_attempt();
}

void AgentSession::handle_frame(const Packet& packet) {
  if (closed_) return;
  liveness_clock_.advance(simulation_.time.now());
  last_heard_ = liveness_clock_.elapsed();
  if (!std::exchange(established_, true)) {
    record_answer();
    process_->after(policy_.keep_alive_interval,
                    [self = shared_from_this(), attempt = attempts_] { self->beat(attempt); });
  }
  const ServerFrame& frame = *packet.frame;
  if (std::holds_alternative<ServerBeat>(frame)) return record_answer();
  if (const auto* refused = std::get_if<JoinRefused>(&frame)) return fail(Errc::usage, refused->text);
  if (const auto* dropped = std::get_if<NodeDropped>(&frame)) {
    end_round();
    if (dropped->may_return) return end_session(Errc::peer_lost, dropped->text);
    return fail(Errc::peer_lost, dropped->text);
  }
  if (const auto* notice = std::get_if<SessionShutdown>(&frame))
    return end_session(Errc::connection_lost, notice->reason);
  if (const auto* waiting = std::get_if<RendezvousWaiting>(&frame)) return handler_(packet.job, *waiting);
  if (const auto* proposed = std::get_if<RoundProposed>(&frame)) {
    end_round();
    proposal_ = packet.frame;
    restarts_used_ = proposed->round.restarts_used;
    group_generation_ = 0;
    own_index_ = packet.index;
    store_port_ = 0;
    RoundProposed own = *proposed;
    own.round.self = own_index_;
    return handler_(packet.job, std::move(own));
  }
  if (const auto* started = std::get_if<SessionStarted>(&frame)) {
    Round round = std::get<RoundProposed>(*proposal_).round;
    if (round.generation != started->generation) return;
    round.self = own_index_;
    round.master_addr = started->master_addr;
    round.master_port = started->master_port;
    store_ = {round.master_addr, round.master_port};
    in_round_ = true;
    return handler_(packet.job, RoundStarted{std::move(round)});
  }
  if (const auto* changed = std::get_if<RoundChanged>(&frame)) {
    end_round();
    in_round_ = true;
    own_index_ = packet.index;
    RoundChanged own = *changed;
    own.round.self = own_index_;
    restarts_used_ = own.round.restarts_used;
    group_generation_ = own.round.group_generation;
    if (own.joins(own_index_)) store_port_ = 0;
    store_ = {own.round.master_addr, own.round.master_port};
    proposal_ = std::make_shared<const ServerFrame>(RoundProposed{own.round, own.reason});
    return handler_(packet.job, std::move(own));
  }
  if (const auto* asked = std::get_if<StandbyAsked>(&frame)) return handler_(packet.job, *asked);
  if (const auto* asked = std::get_if<RecoveryAsked>(&frame)) return handler_(packet.job, *asked);
  if (const auto* able = std::get_if<WorkersRecoverable>(&frame)) return handler_(packet.job, *able);
  if (const auto* resumed = std::get_if<RoundResumed>(&frame)) {
    if (!kept_) return;
    end_round();
    in_round_ = true;
    return handler_(packet.job, *resumed);
  }
  if (const auto* refused = std::get_if<ReplacementRefused>(&frame)) {
    if (proposal_ && std::get<RoundProposed>(*proposal_).round.generation == refused->generation) end_round();
    return handler_(packet.job, *refused);
  }
  if (const auto* replaced = std::get_if<WorkersReplaced>(&frame)) {
    restarts_used_ = replaced->restarts_used;
    group_generation_ = replaced->group_generation;
    return handler_(packet.job, *replaced);
  }
  if (const auto* answer = std::get_if<LeaveAnswered>(&frame)) return handler_(packet.job, *answer);
  if (const auto* ended = std::get_if<JobEnded>(&frame)) {
    close();
    handler_(packet.job, *ended);
  }
}

void AgentSession::beat(int attempt) {
  if (closed_ || attempt != attempts_) return;
  liveness_clock_.advance(simulation_.time.now());
  const auto bound = policy_.keep_alive_interval * policy_.keep_alive_max_attempt;
  if (liveness_clock_.reliable() && liveness_clock_.elapsed() - last_heard_ > bound)
    return end_session(Errc::connection_lost, "no heartbeat of the server");
  unanswered_.push_back(simulation_.time.now());
  send(SessionBeat{});
  process_->after(policy_.keep_alive_interval, [self = shared_from_this(), attempt] { self->beat(attempt); });
}

// Another server may answer next, so JOIN carries the round that this node was in.
void AgentSession::end_session(Errc code, const std::string& why) {
  if (rejoin_timeout_ <= 0s || !policy_.may_be_replaced()) return fail(code, why);
  connection_->close(Connection::client);
  ++attempts_;
  established_ = false;
  rejoining_ = true;
  join_deadline_ = simulation_.time.now() + rejoin_timeout_;
  if (proposal_) {
    const Round& round = std::get<RoundProposed>(*proposal_).round;
    self_.former =
        FormerRound{.generation = round.generation, .group_rank = own_index_, .restarts_used = restarts_used_};
  }
  ++simulation_.checker.counts().rejoins;
  handler_(-1, ContactBroken{why, std::chrono::duration_cast<std::chrono::milliseconds>(next_lease())});
  process_->after(0s, [self = shared_from_this()] { self->attempt(); });
}

// ---- the lease, as that of SessionClient

void AgentSession::record_answer() {
  if (unanswered_.empty()) return;
  known_at_ = unanswered_.front();
  unanswered_.pop_front();
}

Duration AgentSession::next_lease() {
  const bool kept = std::exchange(kept_, false);
  if (std::exchange(in_round_, false))
    lease_end_ = known_at_ + policy_.heartbeat_timeout();
  else if (!kept)
    lease_end_ = {};
  return std::max<Duration>(0s, lease_end_ - simulation_.time.now());
}

void AgentSession::keep_round(bool done) {
  kept_ = true;
  done_ = done;
  process_->at(lease_end_, [weak = weak_from_this(), end = lease_end_] {
    const auto self = weak.lock();
    if (self && self->kept_ && self->lease_end_ == end && !self->closed_) self->end_lease();
  });
}

void AgentSession::end_lease() {
  end_round();
  if (established_) return end_session(Errc::connection_lost, "the lease has ended");
  if (connection_->open(Connection::client)) give_up_attempt();
  if (!closed_) handler_(-1, ContactBroken{"the lease has ended"});
}

void AgentSession::give_up_round() {
  if (!kept_) return;
  end_round();
  if (established_) return end_session(Errc::connection_lost, "the workers have stopped");
  if (connection_->open(Connection::client)) give_up_attempt();
}

void AgentSession::fail(Errc code, const std::string& text) {
  close();
  handler_(-1, ContactLost{Error(code, text)});
}

void AgentSession::close() {
  closed_ = true;
  established_ ? connection_->close(Connection::client) : connection_->reset(Connection::client);
}

}  // namespace ddprun::testing
