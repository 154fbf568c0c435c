#include "rendezvous/membership/node_sessions.h"

#include <algorithm>
#include <csignal>
#include <random>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "common/exit_code.h"
#include "common/random.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/store/awaited.h"
#include "rendezvous/store/backoff.h"
#include "rendezvous/store/protocol.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

using Clock = std::chrono::steady_clock;
constexpr auto first_report_delay = 500ms;  // a server usually starts within this time: no log line before

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

std::string NodeSessions::session_request(const NodeFrame& frame) {
  return rendezvous::encode(rendezvous::Request(rendezvous::SessionRequest{encode(frame)}));
}

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
  std::minstd_rand random{random_seed()};
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

}  // namespace ddprun
