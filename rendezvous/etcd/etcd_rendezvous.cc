#include "rendezvous/etcd/etcd_rendezvous.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/error.h"
#include "common/random.h"
#include "common/timer.h"
#include "common/wall_clock.h"
#include "rendezvous/etcd/etcd_json.h"
#include "rendezvous/etcd/job_node.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/store/awaited.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using namespace std::chrono_literals;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto first_report_delay = 500ms;  // a server usually starts within this time: no log line before
constexpr auto job_lease = 600s;            // a job's records outlive its last leader by this time
constexpr auto request_timeout = 30s;       // for requests that etcd answers with a temporary error
constexpr auto departure_timeout = 2s;
constexpr auto destructor_timeout = 1s;  // blocks the event loop

EtcdMoment etcd_now() {
  return {.steady = Membership::Clock::now(), .wall_us = wall_clock_us()};
}

seconds wanted_ttl(const JobPolicy& policy) {
  return std::max(seconds(1), std::chrono::ceil<seconds>(policy.keep_alive_interval * policy.keep_alive_max_attempt));
}

json::object with_id(std::int64_t lease) {
  return {{"ID", std::to_string(lease)}};
}

json::object with_ttl(seconds ttl) {
  return {{"TTL", std::to_string(ttl.count())}};
}

// The node's last transaction, which outlives its session.
struct Departure {
  EtcdServers servers;
  EtcdTxn txn;
  EtcdLeases leases;
  bool sent = false;
};

asio::awaitable<void> send_departure(asio::io_context& loop, std::shared_ptr<Departure> departure, Deadline deadline) {
  EtcdClient client(loop, departure->servers);
  const bool has_txn = !departure->txn.success.empty();
  try {
    if (has_txn)
      co_await client.call("/v3/kv/txn", txn_request(departure->txn, departure->leases), "leaving", deadline);
    // Also makes writes that are still on the wire fail.
    co_await client.call("/v3/lease/revoke", with_id(departure->leases.node), "the node's lease", deadline);
  } catch (const Error&) {
    // The lease expires by itself.
  }
  departure->sent = true;
}

}  // namespace

// One join(): from the first request to the end. Its coroutines keep it alive; stop() ends them.
class EtcdRendezvous::JobSession : public std::enable_shared_from_this<JobSession> {
 public:
  JobSession(asio::io_context& loop, EtcdRendezvousOptions options, NodeInfo self, JobPolicy policy, Handler handler)
      : options_(std::move(options)),
        self_(std::move(self)),
        policy_(std::move(policy)),
        handler_(std::move(handler)),
        loop_(loop),
        requests_(loop, options_.servers),
        keepalive_(loop, options_.servers),
        watch_(loop, options_.servers),
        work_(loop, asio::steady_timer::time_point::max()),
        keepalive_timer_(loop),
        tick_timer_(loop),
        rewatch_timer_(loop),
        finish_timer_(loop),
        began_(Deadline::Clock::now()),
        join_deadline_(Deadline::in(policy_.join_timeout)) {}

  void start() { spawn(&JobSession::run); }

  void stop() {
    handler_ = nullptr;
    close();
  }

  template <class Change>
  void update(Change change) {
    if (!node_ || closed_) return;
    change(*node_);
    process_changes();
  }

  std::shared_ptr<Departure> leave(const std::string& reason) {
    std::shared_ptr<Departure> departure;
    if (node_ && !closed_) {
      departure = make_departure(node_->leave(reason));
      asio::co_spawn(loop_, send_departure(loop_, departure, Deadline::in(departure_timeout)), asio::detached);
    }
    stop();
    return departure;
  }

  void finish(Deadline deadline, std::function<void()> done) {
    if (!node_ || closed_) return asio::post(loop_, std::move(done));
    done_ = std::move(done);
    if (deadline.when()) {
      finish_timer_.run_at(*deadline.when(), [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (self && !self->closed_) self->depart(self->node_->leave("its job is over"));
      });
    }
    update([](JobNode& node) { node.finish(); });
  }

 private:
  using Flow = asio::awaitable<void> (JobSession::*)();

  void spawn(Flow flow) { asio::co_spawn(loop_, guarded(shared_from_this(), flow), asio::detached); }

  // The parameter keeps this object alive as long as the coroutine's frame.
  asio::awaitable<void> guarded(std::shared_ptr<JobSession>, Flow flow) {
    try {
      co_await (this->*flow)();
    } catch (const Error& error) {
      if (!closed_) fail(error.code(), error.what());
    }
  }

  // ---- the lease

  asio::awaitable<void> run() {
    co_await get_lease();
    if (closed_) co_return;
    spawn(&JobSession::keep_lease);
    spawn(&JobSession::watch);
    co_await write();
  }

  asio::awaitable<void> get_lease() {
    auto slice = Deadline::in(first_report_delay);
    while (!closed_) {
      const auto sent = Deadline::Clock::now();
      std::string problem;
      try {
        const json::value answer = co_await requests_.call("/v3/lease/grant", with_ttl(wanted_ttl(policy_)),
                                                           "the node's lease", earlier(slice, join_deadline_));
        co_return begin(answer, sent);
      } catch (const Error& error) {
        if (error.code() != Errc::unreachable) throw;
        problem = error.what();
      }
      if (join_deadline_.expired()) throw make_error(Errc::timeout, "{}", unreachable_text(problem));
      report_waiting(problem);
      slice = Deadline::in(5s);
    }
  }

  void begin(const json::value& answer, Deadline::Clock::time_point sent) {
    if (closed_) return;
    leases_.node = integer_at(answer, "ID");
    ttl_ = seconds(integer_at(answer, "TTL"));
    if (leases_.node == 0 || ttl_ <= 0s) throw make_error(Errc::protocol, "etcd granted no lease");
    lease_end_ = sent + ttl_;
    const auto attempt = std::clamp<milliseconds>(ttl_ / 4, 500ms, 5s);
    for (auto* client : {&requests_, &keepalive_, &watch_}) client->set_attempt_timeout(attempt);
    node_.emplace(JobKeys(options_.prefix, policy_.run_id), random_hex(8), self_, policy_, requests_.addresses());
  }

  asio::awaitable<void> keep_lease() {
    while (!closed_) {
      keepalive_timer_.expires_after(std::min<milliseconds>(policy_.keep_alive_interval, ttl_ / 3));
      co_await keepalive_timer_.async_wait(awaited);
      if (closed_) co_return;
      const auto sent = Deadline::Clock::now();
      if (sent >= lease_end_) throw make_error(Errc::connection_lost, "{}", late_keepalive_text());
      const auto ttl = co_await send_keepalive(leases_.node, Deadline::at(lease_end_));
      if (closed_) co_return;
      if (ttl <= 0s)
        throw make_error(Errc::peer_lost, "etcd at {} received nothing from this node for {}, so its lease expired",
                         options_.servers.text(), duration_text(ttl_));
      lease_end_ = sent + ttl;
      if (leases_.job != 0 && co_await send_keepalive(leases_.job, Deadline::at(lease_end_)) <= 0s) leases_.job = 0;
    }
  }

  asio::awaitable<seconds> send_keepalive(std::int64_t lease, Deadline deadline) {
    try {
      const json::value answer = co_await keepalive_.call("/v3/lease/keepalive", with_id(lease), "a lease", deadline);
      const auto* object = answer.if_object();
      const auto* result = object ? object->if_contains("result") : nullptr;
      co_return seconds(result ? integer_at(*result, "TTL") : 0);
    } catch (const Error& error) {
      if (error.code() != Errc::unreachable) throw;
      throw make_error(Errc::connection_lost, "lost etcd, and with it the lease of {} s: {}", ttl_.count(),
                       error.what());
    }
  }

  // ---- writing

  asio::awaitable<void> write() {
    while (!closed_) {
      const auto txn = node_->next_txn(etcd_now());
      if (!txn) {
        co_await work_.async_wait(awaited);
        work_.expires_at(asio::steady_timer::time_point::max());
        continue;
      }
      const EtcdTxnResult result = co_await execute(*txn);
      if (closed_) co_return;
      node_->answered(result);
      process_changes();
    }
  }

  asio::awaitable<EtcdTxnResult> execute(const EtcdTxn& txn) {
    const auto deadline = Deadline::in(std::max<milliseconds>(ttl_, request_timeout));
    const bool for_job = std::any_of(txn.success.begin(), txn.success.end(), [](const auto& operation) {
      return operation.lease == EtcdOperation::Lease::job;
    });
    if (for_job && leases_.job == 0) {
      const auto ttl = std::max<seconds>(job_lease, 10 * ttl_);
      const json::value answer = co_await requests_.call("/v3/lease/grant", with_ttl(ttl), "the job's lease", deadline);
      leases_.job = integer_at(answer, "ID");
    }
    const std::string about = txn.success.empty() ? "" : txn.success.front().key;
    const json::value answer =
        co_await requests_.call("/v3/kv/txn", txn_request(txn, leases_), "'" + about + "'", deadline);
    co_return read_txn_answer(answer);
  }

  // ---- watching

  asio::awaitable<void> watch() {
    while (!closed_) {
      watched_ = node_->watched();
      const json::value answer = co_await watch_.call("/v3/kv/range", range_request(watched_), "'" + watched_ + "'",
                                                      Deadline::in(std::max<milliseconds>(ttl_, request_timeout)));
      if (closed_) co_return;
      const EtcdRange range = read_range_answer(answer);
      node_->resync(etcd_now(), watched_, range.entries, range.revision);
      process_changes();
      if (closed_ || node_->watched() != watched_) continue;
      co_await watch_.listen("/v3/watch", watch_request(watched_, range.revision + 1),
                             [this](const json::value& line) { handle_watch_line(line); });
      if (closed_ || node_->watched() != watched_) continue;
      watch_.use_next_server();
      rewatch_timer_.expires_after(50ms);
      co_await rewatch_timer_.async_wait(awaited);
    }
  }

  void handle_watch_line(const json::value& line) {
    if (closed_) return;
    try {
      const EtcdWatchAnswer answer = read_watch_answer(line);
      for (const auto& change : answer.changes) node_->changed(etcd_now(), change);
      if (answer.canceled) watch_.disconnect();
      process_changes();
    } catch (const Error& error) {
      fail(error.code(), error.what());
    }
  }

  // ---- events

  void process_changes() {
    for (auto& event : node_->take_events()) events_.push_back(std::move(event));
    emit_events();
    if (closed_) return;
    if (node_->gone()) return depart({});
    if (node_->watched() != watched_) watch_.disconnect();
    work_.cancel();
    set_tick();
  }

  // The handler may call or destroy the owner.
  void emit_events() {
    if (emitting_) return;
    emitting_ = true;
    while (!events_.empty()) {
      const RendezvousEvent event = std::move(events_.front());
      events_.pop_front();
      if (const Handler handler = handler_) handler(event);
    }
    emitting_ = false;
  }

  void set_tick() {
    const auto due = node_->next_tick();
    if (!due) return static_cast<void>(tick_timer_.cancel());
    if (tick_armed_ == due) return;
    tick_armed_ = due;
    tick_timer_.run_at(*due, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self || self->closed_) return;
      self->tick_armed_.reset();
      self->node_->tick(etcd_now());
      self->process_changes();
    });
  }

  // ---- the end

  std::shared_ptr<Departure> make_departure(EtcdTxn txn) const {
    return std::make_shared<Departure>(
        Departure{.servers = options_.servers, .txn = std::move(txn), .leases = leases_});
  }

  // Executes the last transaction, revokes the lease, and calls done.
  void depart(EtcdTxn last_txn) {
    const auto departure = make_departure(std::move(last_txn));
    stop();
    asio::co_spawn(loop_, send_departure(loop_, departure, Deadline::in(departure_timeout)),
                   [done = std::exchange(done_, nullptr)](const std::exception_ptr&) {
                     if (done) done();
                   });
  }

  void fail(Errc code, const std::string& text) {
    close();
    events_.emplace_back(ContactLost{Error(code, text)});
    emit_events();
    if (done_) asio::post(loop_, std::exchange(done_, nullptr));
  }

  void close() {
    closed_ = true;
    for (auto* client : {&requests_, &keepalive_, &watch_}) client->close();
    for (auto* timer : {&work_, &keepalive_timer_, &rewatch_timer_}) timer->cancel();
    for (auto* timer : {&tick_timer_, &finish_timer_}) timer->cancel();
  }

  // ---- messages

  void report_waiting(const std::string& problem) {
    if (reported_waiting_) return;
    reported_waiting_ = true;
    events_.emplace_back(
        RendezvousWaiting{fmt::format("{}; trying for up to {}", problem, duration_text(policy_.join_timeout))});
    emit_events();
  }

  std::string unreachable_text(const std::string& problem) const {
    const auto elapsed = std::chrono::duration_cast<milliseconds>(Deadline::Clock::now() - began_);
    return fmt::format(
        "{}, and so for {}: check that etcd runs there and that its client port can be reached from here", problem,
        duration_text(elapsed));
  }

  std::string late_keepalive_text() const {
    return fmt::format(
        "this process did not renew its lease of {} at etcd in time: it was stopped, or got no processor time",
        duration_text(ttl_));
  }

  const EtcdRendezvousOptions options_;
  const NodeInfo self_;
  const JobPolicy policy_;
  Handler handler_;

  asio::io_context& loop_;
  EtcdClient requests_;
  EtcdClient keepalive_;  // separate, so that a large response does not delay renewals
  EtcdClient watch_;
  asio::steady_timer work_;  // cancelled to wake write()
  asio::steady_timer keepalive_timer_;
  Timer tick_timer_;
  asio::steady_timer rewatch_timer_;
  Timer finish_timer_;
  const Deadline::Clock::time_point began_;
  const Deadline join_deadline_;

  EtcdLeases leases_;
  seconds ttl_{};
  Deadline::Clock::time_point lease_end_{};  // by this node's clock; never later than by etcd's
  std::optional<JobNode> node_;              // set with the lease
  std::string watched_;
  std::optional<Membership::Time> tick_armed_;
  std::deque<RendezvousEvent> events_;
  bool emitting_ = false;
  bool reported_waiting_ = false;
  bool closed_ = false;  // this join is over
  std::function<void()> done_;
};

// ---- EtcdRendezvous

struct EtcdRendezvous::PendingDeparture {
  std::shared_ptr<Departure> departure;
};

EtcdRendezvous::EtcdRendezvous(asio::io_context& loop, EtcdRendezvousOptions options)
    : loop_(loop), options_(std::move(options)) {}

EtcdRendezvous::~EtcdRendezvous() {
  if (session_) session_->stop();
  if (!pending_departure_ || !pending_departure_->departure || pending_departure_->departure->sent) return;
  asio::io_context loop(1);
  asio::co_spawn(loop, send_departure(loop, pending_departure_->departure, Deadline::in(destructor_timeout)),
                 asio::detached);
  loop.run();
}

void EtcdRendezvous::join(const NodeInfo& self, const JobPolicy& policy, Handler handler) {
  if (session_) session_->stop();
  session_ = std::make_shared<JobSession>(loop_, options_, self, policy, std::move(handler));
  session_->start();
}

void EtcdRendezvous::ready(std::int64_t generation, std::uint16_t worker_store_port) {
  if (session_) session_->update([&](JobNode& node) { node.ready(generation, worker_store_port); });
}

void EtcdRendezvous::report_success(std::int64_t generation) {
  if (session_) session_->update([&](JobNode& node) { node.success(etcd_now(), generation); });
}

void EtcdRendezvous::report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures,
                                    Survivors /*survivors*/) {
  if (session_) session_->update([&](JobNode& node) { node.failure(etcd_now(), generation, failures); });
}

void EtcdRendezvous::report_preempted(std::int64_t generation) {
  if (session_) session_->update([&](JobNode& node) { node.preempted(etcd_now(), generation); });
}

void EtcdRendezvous::report_node(std::int64_t, const NodeReport&) {}

void EtcdRendezvous::request_stop(const std::string& who) {
  if (session_) session_->update([&](JobNode& node) { node.request_stop(who); });
}

void EtcdRendezvous::leave(const std::string& reason) {
  if (session_) pending_departure_ = std::make_shared<PendingDeparture>(PendingDeparture{session_->leave(reason)});
}

void EtcdRendezvous::finish(Deadline deadline, std::function<void()> done) {
  if (!session_) return asio::post(loop_, std::move(done));
  session_->finish(deadline, std::move(done));
}

}  // namespace ddprun
