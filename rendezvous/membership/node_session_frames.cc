// NodeSessions: what the server sends in a session, and what this node does as time passes.
#include <concepts>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/node_sessions.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds attempt_timeout{10};  // from the name lookup to the server's first frame

}  // namespace

void NodeSessions::receive(ServerFrame frame) {
  if (std::holds_alternative<ServerMoved>(frame)) return handle(std::get<ServerMoved>(std::move(frame)));
  if (const auto* server = std::get_if<SessionServer>(&frame); server && !follows(*server)) return;
  if (!established_ && options_.choice && !std::holds_alternative<SessionServer>(frame))
    options_.choice->session_began({}, true);
  if (!established_) begin_session();
  if (liveness_.heard(Clock::now())) options_.choice->server_heard();
  std::visit([this](auto& one) { handle(std::move(one)); }, frame);
}

// A server that is not followed hears nothing of this node.
bool NodeSessions::follows(const SessionServer& server) {
  if (!options_.choice || options_.choice->session_began(server.name, server.decides)) return true;
  end_reason_ = "this node has voted for another server";
  return false;
}

void NodeSessions::acknowledge(std::int64_t sent_us) {
  seen_us_ = sent_us;
  if (options_.choice && may_have_successor_) send(SessionSeen{.sent_us = sent_us, .known = options_.choice->newest()});
}

void NodeSessions::adopt(const Round& round) {
  if (!options_.choice || round.electorate == ElectorateVersion()) return;
  options_.choice->adopt(round);
  acknowledge(seen_us_);
}

void NodeSessions::handle(ServerBeat&& frame) {
  liveness_.answered();
  acknowledge(frame.sent_us);
}

void NodeSessions::handle(SessionServer&& frame) {
  may_have_successor_ = true;
  server_node_ = frame.name.node;
  acknowledge(frame.sent_us);
}

void NodeSessions::handle(ServerMoved&& frame) {
  end_reason_ =
      fmt::format("another server was elected, at {}", format_host_port(frame.address.host, frame.address.port_or(0)));
  if (options_.choice) options_.choice->moved(frame.address);
}

void NodeSessions::handle(ElectorateConfirmed&& frame) {
  if (options_.choice) options_.choice->confirm(frame.version);
}

void NodeSessions::handle(JoinRefused&& frame) {
  fail(Errc::usage, frame.text);
}

void NodeSessions::handle(NodeDropped&& frame) {
  if (!frame.may_return || !may_rejoin()) return fail(Errc::peer_lost, frame.text);
  end_round();
  end_reason_ = frame.text;
}

// Where the server's node has the workers' store, too, the round ends with it.
void NodeSessions::handle(SessionShutdown&& frame) {
  if (round_.is_led_by(server_node_)) end_round();
  end_reason_ = fmt::format("it shuts down ({})", frame.reason);
  server_ends_ = true;
}

void NodeSessions::handle(RoundProposed&& frame) {
  round_.proposed(frame.round);
  lease_timer_.cancel();
  adopt(frame.round);
  emit(std::move(frame));
}

void NodeSessions::handle(SessionStarted&& frame) {
  if (const auto* round = round_.started(frame)) emit(RoundStarted{*round});
}

void NodeSessions::handle(RoundChanged&& frame) {
  round_.changed(frame);
  lease_timer_.cancel();
  adopt(frame.round);
  emit(std::move(frame));
}

void NodeSessions::handle(RoundResumed&& frame) {
  if (!round_.resumed(frame)) return;
  lease_timer_.cancel();
  if (const auto round = round_.electorate(frame)) adopt(*round);
  emit(std::move(frame));
}

void NodeSessions::handle(WorkersReplaced&& frame) {
  if (round_.replaced(frame)) emit(std::move(frame));
}

void NodeSessions::handle(ReplacementRefused&& frame) {
  round_.not_replaced(frame);
  if (!round_.kept()) lease_timer_.cancel();
  emit(std::move(frame));
}

void NodeSessions::handle(JobEnded&& frame) {
  close();
  emit(std::move(frame));
}

// Messages of other agents, and events that are only passed on.
template <class Event>
void NodeSessions::handle(Event&& event) {
  if constexpr (std::constructible_from<RelayMessage, Event>) {
    if (const auto received = relay_.received) received(RelayMessage(std::forward<Event>(event)));
  } else {
    emit(std::forward<Event>(event));
  }
}

// The handler may call or destroy the owner.
void NodeSessions::emit(RendezvousEvent event) {
  if (const Handler handler = handler_) handler(std::move(event));
}

void NodeSessions::fail(Errc code, const std::string& text) {
  close();
  emit(ContactLost{Error(code, text)});
}

// ---- time

void NodeSessions::set_watchdog() {
  watchdog_.run_at(*earlier(Deadline::in(attempt_timeout), join_deadline_).when(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->attempt_.timed_out = true;
    self->attempt_.unresolved = self->lookup_.pending();
    self->lookup_.cancel();
    self->drop_connection();
  });
}

void NodeSessions::begin_session() {
  established_ = true;
  watchdog_.cancel();
  liveness_.began(Clock::now());
  schedule_heartbeat();
  if (options_.choice) watch_silence(liveness_.first_silence_check());
  if (const auto connected = relay_.connected) connected();
}

void NodeSessions::schedule_heartbeat() {
  beat_timer_.run_after(liveness_.next_beat(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && !self->closed_) self->send_heartbeat();
  });
}

void NodeSessions::send_heartbeat() {
  if (liveness_.is_lost(Clock::now()))
    return end_session(fmt::format("no heartbeat for {}", duration_text(policy_.heartbeat_timeout())));
  beat();
  schedule_heartbeat();
}

void NodeSessions::beat() {
  liveness_.beat_sent(Clock::now());
  send(SessionBeat{});
}

void NodeSessions::watch_silence(Clock::duration pause) {
  silence_timer_.run_after(pause, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->has_session()) self->check_silence();
  });
}

void NodeSessions::check_silence() {
  const bool workers_wait = workers_wait_ && workers_wait_();
  const auto check = liveness_.check_silence(Clock::now(), may_have_successor_, workers_wait);
  if (check.action == ServerLiveness::Silence::report) options_.choice->server_silent(liveness_.heard_at());
  if (check.action == ServerLiveness::Silence::probe) beat();
  watch_silence(check.again);
}

// The round goes on no more in this node, whatever happens to the session.
void NodeSessions::end_round() {
  round_.end();
  lease_timer_.cancel();
}

// An attempt that has not been answered may have told a server that the workers run.
void NodeSessions::end_lease() {
  end_round();
  if (established_) return end_session("not all nodes of the round were back in time for the workers to go on");
  drop_connection();
  emit(ContactBroken{fmt::format("{}; no server was back in time for the workers to go on", lost_reason_)});
}

}  // namespace ddprun
