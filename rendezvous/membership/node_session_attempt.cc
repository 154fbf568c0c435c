// NodeSessions: one attempt to open a session, and the session until its connection ends.
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/membership/node_sessions.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/trust/authentication_error.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

std::vector<std::string> texts(const rendezvous::HostAddresses& addresses) {
  std::vector<std::string> texts;
  for (const auto& address : addresses.found) texts.push_back(address.text());
  return texts;
}

}  // namespace

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

}  // namespace ddprun
