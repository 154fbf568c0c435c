#include "rendezvous/membership/node_sessions.h"

#include <algorithm>
#include <concepts>
#include <csignal>
#include <random>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "common/exit_code.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/store/awaited.h"
#include "rendezvous/store/backoff.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/trust/authentication_error.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using boost::system::error_code;

using Clock = std::chrono::steady_clock;
constexpr auto attempt_timeout = 10s;       // from the name lookup to the server's first frame
constexpr auto first_report_delay = 500ms;  // a server usually starts within this time: no log line before

std::vector<std::string> texts(const rendezvous::HostAddresses& addresses) {
  std::vector<std::string> texts;
  for (const auto& address : addresses.found) texts.push_back(address.text());
  return texts;
}

std::string session_request(const NodeFrame& frame) {
  return rendezvous::encode(rendezvous::Request(rendezvous::SessionRequest{encode(frame)}));
}

}  // namespace

NodeSessions::NodeSessions(asio::io_context& loop, SessionClientOptions options, NodeInfo self, JobPolicy policy,
                           Handler handler, RelayHandlers relay, std::function<bool()> workers_wait)
    : options_(std::move(options)),
      texts_(options_.host, options_.port),
      self_(std::move(self)),
      policy_(std::move(policy)),
      handler_(std::move(handler)),
      relay_(std::move(relay)),
      workers_wait_(std::move(workers_wait)),
      loop_(loop),
      connection_(std::make_shared<ServerConnection>(loop)),
      lookup_(loop),
      watchdog_(loop),
      beat_timer_(loop),
      silence_timer_(loop),
      lease_timer_(loop),
      pause_(loop),
      target_{options_.host, options_.port},
      liveness_(policy_),
      round_(self_.id, policy_.heartbeat_timeout()),
      began_(Deadline::Clock::now()),
      join_deadline_(Deadline::in(policy_.join_timeout)) {}

void NodeSessions::start() {
  if (options_.choice) options_.choice->begin(self_, policy_);
  asio::co_spawn(loop_, run(shared_from_this()), asio::detached);
}

void NodeSessions::stop() {
  handler_ = nullptr;
  relay_ = {};
  close();
}

void NodeSessions::leave(const std::string& reason) {
  handler_ = nullptr;
  relay_ = {};
  if (established_ && !closed_) connection_->write_at_once(session_request(SessionLeave{reason}));
  close();
}

// ---- what the node asks and tells

void NodeSessions::send(const NodeFrame& frame) {
  if (established_ && !closed_) connection_->write(session_request(frame));
}

void NodeSessions::ready(std::int64_t generation, std::uint16_t worker_store_port) {
  round_.ready(worker_store_port);
  send(SessionReady{generation, worker_store_port});
}

// Without a session no server knows of this node, so it decides by itself.
void NodeSessions::request_stop(const std::string& who) {
  if (closed_) return;
  if (established_) return send(StopRequest{.run_id = {}, .who = who});
  asio::post(loop_, [self = shared_from_this(), who] {
    if (self->closed_) return;
    self->close();
    self->emit(JobEnded{{.exit_code = exit_for_signal(SIGTERM), .reason = "stopped by " + who}});
  });
}

// Until the lease ends, JOIN says that this node's workers run.
void NodeSessions::keep_round(bool done) {
  if (!round_.keep(done)) return;
  lease_timer_.run_at(round_.lease_end(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && self->round_.kept() && !self->closed_) self->end_lease();
  });
}

// A server that has been told that the workers run learns the contrary by another JOIN.
void NodeSessions::give_up_round() {
  if (!round_.kept()) return;
  end_round();
  if (has_session())
    end_session("the workers of this node have stopped");
  else if (!established_)
    drop_connection();
}

void NodeSessions::redial() {
  if (closed_ || established_) return;
  pause_.cancel();
  if (dialling_) drop_connection();
}

void NodeSessions::give_server_up() {
  if (has_session())
    end_session(fmt::format("no message for {}, as at most nodes", duration_text(liveness_.silence(Clock::now()))));
}

// ---- the loop of attempts

// The parameter keeps this object alive as long as the coroutine's frame.
asio::awaitable<void> NodeSessions::run(std::shared_ptr<NodeSessions>) {
  Backoff backoff;
  std::minstd_rand random{std::random_device{}()};
  while (!closed_) {
    const std::string problem = co_await attempt();
    if (closed_) co_return;
    if (established_) {
      if (!may_rejoin()) co_return fail(Errc::connection_lost, lost_text(problem));
      begin_rejoin(problem);
      backoff = Backoff();
    } else {
      if (refused_too_long()) co_return fail(Errc::usage, fmt::format("{}: {}", texts_.endpoint(), problem));
      if (may_be_torch_store() && co_await probe_torch_store()) co_return fail(Errc::usage, texts_.torch_store());
      if (closed_) co_return;
      if (join_deadline_.expired()) co_return give_up(problem);
      report_waiting(problem);
      pause_.expires_at(*earlier(Deadline::in(next_pause(backoff.next(random))), join_deadline_).when());
      co_await pause_.async_wait(awaited);
    }
    if (!closed_ && options_.before_retry) options_.before_retry();
  }
}

// All nodes have to be back within the lease, so they ask often.
Clock::duration NodeSessions::next_pause(Clock::duration backoff) const {
  constexpr auto longest_while_kept = 200ms;
  return round_.kept() ? std::min<Clock::duration>(backoff, longest_while_kept) : backoff;
}

// PyTorch's store server knows no authentication.
bool NodeSessions::may_be_torch_store() const {
  return attempt_.connected && !attempt_.timed_out && !options_.credentials;
}

bool NodeSessions::refused_too_long() {
  if (!attempt_.refused) {
    refused_since_.reset();
    return false;
  }
  if (!refused_since_) refused_since_ = Deadline::Clock::now();
  return Deadline::Clock::now() - *refused_since_ >= options_.refusal_patience;
}

bool NodeSessions::may_rejoin() const {
  return options_.rejoin_timeout.count() > 0 && policy_.may_be_replaced();
}

// Another server may answer at the endpoint then, so JOIN carries the round that this node was in.
void NodeSessions::begin_rejoin(const std::string& problem) {
  established_ = false;
  end_reason_.reset();
  began_ = Deadline::Clock::now();
  lost_reason_ = lost_text(problem);
  lease_timer_.cancel();
  const auto lease = round_.session_lost(Clock::now(), liveness_.known_at());
  const bool server_ended = std::exchange(server_ends_, false);
  join_deadline_ = Deadline::in(std::max<Clock::duration>(options_.rejoin_timeout, lease));
  emit(ContactBroken{
      .text = fmt::format("{}; trying to rejoin for {}", lost_reason_, duration_text(options_.rejoin_timeout)),
      .lease = lease,
      .server_ended = server_ended});
  if (!options_.choice || closed_) return;
  options_.choice->session_lost(liveness_.heard_at());
  if (server_ended) options_.choice->server_ends();
  if (const auto until = options_.choice->patience_ends()) extend_to(*until);
}

void NodeSessions::extend_to(Time until) {
  if (join_deadline_.when() && *join_deadline_.when() < until) join_deadline_ = Deadline::at(until);
}

NodeInfo NodeSessions::self_for_join() const {
  auto self = self_;
  self.serves = self.port != 0 && own_;
  if (auto former = round_.former()) self.former = std::move(former);
  return self;
}

void NodeSessions::give_up(const std::string& problem) {
  if (!lost_reason_.empty())
    return fail(Errc::connection_lost, fmt::format("{}; it did not come back within {} (--rdzv_conf=store_timeout)",
                                                   lost_reason_, duration_text(options_.rejoin_timeout)));
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - began_);
  fail(Errc::timeout, name_problem_ ? texts_.unresolved(problem, elapsed) : texts_.unreachable(problem, elapsed));
}

void NodeSessions::report_waiting(const std::string& problem) {
  const auto elapsed = Deadline::Clock::now() - began_;
  if (elapsed < first_report_delay || problem == reported_problem_ || !lost_reason_.empty()) return;
  reported_problem_ = problem;
  emit(RendezvousWaiting{texts_.waiting(problem, policy_.join_timeout)});
}

std::string NodeSessions::lost_text(const std::string& problem) const {
  return lost_server_text(target_, problem);
}

// ---- one attempt and its session

// Dials once and runs the session to its end. Returns why it ended or failed to open.
asio::awaitable<std::string> NodeSessions::attempt() {
  if (options_.choice) {
    const auto target = options_.choice->target();
    if (!target) {
      attempt_.connected = attempt_.refused = false;
      co_return last_problem_ = "the agents of the job elect another server";
    }
    target_ = *target;
    own_ = options_.choice->is_own(target_);
  }
  dialling_ = true;
  const auto problem = co_await dial();
  dialling_ = false;
  if (!established_ && options_.choice && !closed_) options_.choice->attempt_failed(target_);
  co_return problem;
}

asio::awaitable<std::string> NodeSessions::dial() {
  attempt_ = {};
  may_have_successor_ = false;
  end_reason_.reset();
  begin_attempt();
  const std::string problem = co_await serve();
  end_attempt();
  // If the join deadline cut this attempt short, the cause of the previous one is more useful.
  if (attempt_.timed_out && !last_problem_.empty() && join_deadline_.expired()) co_return last_problem_;
  last_problem_ = attempt_.timed_out ? problem_of_timeout() : problem;
  name_problem_ = attempt_.unresolved;
  co_return last_problem_;
}

void NodeSessions::begin_attempt() {
  connection_ = std::make_shared<ServerConnection>(loop_);
  set_watchdog();
}

std::string NodeSessions::problem_of_timeout() const {
  if (attempt_.unresolved) return rendezvous::unanswered_lookup_text(options_.host);
  return attempt_.connected ? "it accepts the connection but does not answer" : "no answer";
}

asio::awaitable<std::string> NodeSessions::serve() {
  if (auto problem = co_await connect(); !problem.empty()) co_return problem;
  if (closed_) co_return "";
  attempt_.connected = true;
  if (auto problem = co_await authenticate(); !problem.empty() || closed_) co_return problem;
  liveness_.joining(Clock::now());
  connection_->write(rendezvous::encode(rendezvous::Request(rendezvous::ValidateRequest{})) +
                     session_request(SessionJoin{self_for_join(), policy_}));
  co_return co_await read();
}

// Returns the problem; empty on success.
asio::awaitable<std::string> NodeSessions::connect() {
  if (connect_within_process()) co_return "";
  const auto addresses = co_await lookup_.resolve(target_.host, target_.port_or(0));
  if (!addresses) co_return "no answer";
  attempt_.unresolved = addresses->found.empty();
  if (attempt_.unresolved) co_return addresses->problem;
  if (options_.on_addresses && target_.host == options_.host) options_.on_addresses(texts(*addresses));
  const auto endpoints = rendezvous::tcp_endpoints(*addresses);
  co_return co_await connection_->connect(endpoints);
}

// In a job of several nodes the server has to see the address from which this node comes.
bool NodeSessions::connect_within_process() {
  attempt_.within_process = false;
  if (policy_.max_nodes > 1 || !options_.within_process) return false;
  auto connection = options_.within_process();
  if (!connection) return false;
  connection_->adopt(std::move(connection));
  return attempt_.within_process = true;
}

// Returns the problem; empty on success.
asio::awaitable<std::string> NodeSessions::authenticate() {
  if (!options_.credentials || attempt_.within_process) co_return "";
  try {
    co_await connection_->authenticate(*options_.credentials);
    co_return "";
  } catch (const AuthenticationError& e) {
    attempt_.refused = true;
    co_return e.what();
  } catch (const Error& e) {
    co_return e.what();
  }
}

asio::awaitable<bool> NodeSessions::probe_torch_store() {
  begin_attempt();
  const bool connected = (co_await connect()).empty();
  const bool found = connected && co_await connection_->is_torch_store();
  end_attempt();
  co_return found;
}

asio::awaitable<std::string> NodeSessions::read() {
  rendezvous::FrameParser parser;
  while (!closed_) {
    const auto received = co_await connection_->read();
    if (closed_) co_return "";
    if (end_reason_) co_return *end_reason_;
    if (received.at_end)
      co_return established_ ? "it closed the connection" : "it closed the connection without opening a session";
    if (!received.problem.empty()) co_return received.problem;
    try {
      parser.feed(received.text);
      while (auto bytes = closed_ || end_reason_ ? std::nullopt : parser.next()) receive(decode_server_frame(*bytes));
    } catch (const Error& broken) {
      fail(broken.code(), established_ ? lost_text(broken.what()) : texts_.not_a_server(received.text));
    }
    if (end_reason_) co_return *end_reason_;
  }
  co_return "";
}

// An unanswered JOIN is withdrawn by a reset: a server that read it after the next JOIN would take it for a rejoin.
void NodeSessions::drop_connection() {
  established_ ? connection_->close() : connection_->reset();
}

void NodeSessions::end_attempt() {
  drop_connection();
  lookup_.cancel();
  watchdog_.cancel();
  beat_timer_.cancel();
  silence_timer_.cancel();
}

// Ends the session from this side; the reader's coroutine then rejoins.
void NodeSessions::end_session(const std::string& why) {
  end_reason_ = why;
  connection_->close();
}

void NodeSessions::close() {
  closed_ = true;
  end_attempt();
  pause_.cancel();
  lease_timer_.cancel();
}

// ---- frames from the server

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
