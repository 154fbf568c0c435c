#include "ddprun/rendezvous/etcd/etcd_rendezvous.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <random>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "ddprun/common/error.h"
#include "ddprun/rendezvous/etcd/etcd_json.h"
#include "ddprun/rendezvous/etcd/job_node.h"
#include "ddprun/rendezvous/membership/membership_text.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using namespace std::chrono_literals;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto awaited = asio::as_tuple(asio::use_awaitable);
constexpr auto first_notice = 500ms;     // a server that is a moment behind is not worth a line
constexpr auto job_lease = 600s;         // a job's records outlive its last leader by this
constexpr auto request_timeout = 30s;    // of what etcd answers, but with "not now"
constexpr auto goodbye_timeout = 2s;     // on the way out
constexpr auto destructor_timeout = 1s;  // with the loop at a standstill

EtcdMoment now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return {.steady = Membership::Clock::now(),
          .wall_us = std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count()};
}

std::string random_name() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
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

// The node's last words, apart from its session: they outlive it.
struct Goodbye {
  EtcdServers servers;
  EtcdTxn txn;
  EtcdLeases leases;
  bool said = false;
};

asio::awaitable<void> say(asio::io_context& loop, std::shared_ptr<Goodbye> goodbye, Deadline deadline) {
  EtcdClient client(loop, goodbye->servers);
  const bool words = !goodbye->txn.success.empty();
  try {
    if (words) co_await client.call("/v3/kv/txn", txn_request(goodbye->txn, goodbye->leases), "leaving", deadline);
    // Whatever of ours is still on its way arrives in vain.
    co_await client.call("/v3/lease/revoke", with_id(goodbye->leases.node), "the node's lease", deadline);
  } catch (const Error&) {
    // Then the lease ends by itself.
  }
  goodbye->said = true;
}

}  // namespace

// One join: from the first request to the end. Its coroutines and timers keep it alive; stop() ends them.
class EtcdRendezvous::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(asio::io_context& loop, EtcdRendezvousOptions options, NodeInfo self, JobPolicy policy, Handler handler)
      : options_(std::move(options)),
        self_(std::move(self)),
        policy_(std::move(policy)),
        handler_(std::move(handler)),
        loop_(loop),
        requests_(loop, options_.servers),
        beats_(loop, options_.servers),
        watch_(loop, options_.servers),
        work_(loop, asio::steady_timer::time_point::max()),
        beat_timer_(loop),
        tick_timer_(loop),
        rewatch_timer_(loop),
        finish_timer_(loop),
        began_(Deadline::Clock::now()),
        join_deadline_(Deadline::in(policy_.join_timeout)) {}

  void start() { spawn(&Session::run); }

  void stop() {
    handler_ = nullptr;
    close();
  }

  template <class Change>
  void tell(Change change) {
    if (!node_ || over_) return;
    change(*node_);
    follow();
  }

  std::shared_ptr<Goodbye> leave(const std::string& reason) {
    std::shared_ptr<Goodbye> goodbye;
    if (node_ && !over_) {
      goodbye = farewell(node_->leave(reason));
      asio::co_spawn(loop_, say(loop_, goodbye, Deadline::in(goodbye_timeout)), asio::detached);
    }
    stop();
    return goodbye;
  }

  void finish(Deadline deadline, std::function<void()> done) {
    if (!node_ || over_) return asio::post(loop_, std::move(done));
    done_ = std::move(done);
    if (deadline.when()) {
      finish_timer_.expires_at(*deadline.when());
      finish_timer_.async_wait([weak = weak_from_this()](error_code error) {
        const auto self = weak.lock();
        if (!error && self && !self->over_) self->go(self->node_->leave("its job is over"));
      });
    }
    tell([](JobNode& node) { node.finish(); });
  }

 private:
  using Flow = asio::awaitable<void> (Session::*)();

  void spawn(Flow flow) { asio::co_spawn(loop_, guarded(shared_from_this(), flow), asio::detached); }

  // A parameter rather than a capture keeps this alive: the frame owns it.
  asio::awaitable<void> guarded(std::shared_ptr<Session>, Flow flow) {
    try {
      co_await (this->*flow)();
    } catch (const Error& error) {
      if (!over_) lose(error.code(), error.what());
    }
  }

  // ---- the lease

  asio::awaitable<void> run() {
    co_await get_lease();
    if (over_) co_return;
    spawn(&Session::keep_lease);
    spawn(&Session::watch);
    co_await write();
  }

  asio::awaitable<void> get_lease() {
    auto slice = Deadline::in(first_notice);
    while (!over_) {
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
      notice(problem);
      slice = Deadline::in(5s);
    }
  }

  void begin(const json::value& answer, Deadline::Clock::time_point sent) {
    if (over_) return;
    leases_.node = integer_at(answer, "ID");
    ttl_ = seconds(integer_at(answer, "TTL"));
    if (leases_.node == 0 || ttl_ <= 0s) throw make_error(Errc::protocol, "etcd granted no lease");
    lease_end_ = sent + ttl_;
    const auto attempt = std::clamp<milliseconds>(ttl_ / 4, 500ms, 5s);
    for (auto* client : {&requests_, &beats_, &watch_}) client->set_attempt_timeout(attempt);
    node_.emplace(JobKeys(options_.prefix, policy_.run_id), random_name(), self_, policy_, requests_.addresses());
  }

  asio::awaitable<void> keep_lease() {
    while (!over_) {
      beat_timer_.expires_after(std::min<milliseconds>(policy_.keep_alive_interval, ttl_ / 3));
      co_await beat_timer_.async_wait(awaited);
      if (over_) co_return;
      const auto sent = Deadline::Clock::now();
      if (sent >= lease_end_) throw make_error(Errc::connection_lost, "{}", late_text());
      const auto ttl = co_await beat(leases_.node, Deadline::at(lease_end_));
      if (over_) co_return;
      if (ttl <= 0s)
        throw make_error(Errc::peer_lost, "etcd at {} heard nothing from this node for {} and let its lease end",
                         options_.servers.text(), duration_text(ttl_));
      lease_end_ = sent + ttl;
      if (leases_.job != 0 && co_await beat(leases_.job, Deadline::at(lease_end_)) <= 0s) leases_.job = 0;
    }
  }

  asio::awaitable<seconds> beat(std::int64_t lease, Deadline deadline) {
    try {
      const json::value answer = co_await beats_.call("/v3/lease/keepalive", with_id(lease), "a lease", deadline);
      const auto* object = answer.if_object();
      const auto* result = object ? object->if_contains("result") : nullptr;
      co_return seconds(result ? integer_at(*result, "TTL") : 0);
    } catch (const Error& error) {
      if (error.code() != Errc::unreachable) throw;
      throw make_error(Errc::connection_lost, "lost etcd, and with it the lease of {} s: {}", ttl_.count(),
                       error.what());
    }
  }

  // ---- what is to be written

  asio::awaitable<void> write() {
    while (!over_) {
      const auto txn = node_->next_txn(now());
      if (!txn) {
        co_await work_.async_wait(awaited);
        work_.expires_at(asio::steady_timer::time_point::max());
        continue;
      }
      const EtcdTxnResult result = co_await carry_out(*txn);
      if (over_) co_return;
      node_->answered(result);
      follow();
    }
  }

  asio::awaitable<EtcdTxnResult> carry_out(const EtcdTxn& txn) {
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

  // ---- what is there

  asio::awaitable<void> watch() {
    while (!over_) {
      watched_ = node_->watched();
      const json::value answer = co_await watch_.call("/v3/kv/range", range_request(watched_), "'" + watched_ + "'",
                                                      Deadline::in(std::max<milliseconds>(ttl_, request_timeout)));
      if (over_) co_return;
      const EtcdRange range = read_range_answer(answer);
      node_->resync(now(), watched_, range.entries, range.revision);
      follow();
      if (over_ || node_->watched() != watched_) continue;
      co_await watch_.listen("/v3/watch", watch_request(watched_, range.revision + 1),
                             [this](const json::value& line) { hear(line); });
      if (over_ || node_->watched() != watched_) continue;
      watch_.turn_to_next_server();
      rewatch_timer_.expires_after(50ms);
      co_await rewatch_timer_.async_wait(awaited);
    }
  }

  void hear(const json::value& line) {
    if (over_) return;
    try {
      const EtcdWatchAnswer answer = read_watch_answer(line);
      for (const auto& change : answer.changes) node_->changed(now(), change);
      if (answer.canceled) watch_.disconnect();
      follow();
    } catch (const Error& error) {
      lose(error.code(), error.what());
    }
  }

  // ---- what follows from it

  void follow() {
    for (auto& event : node_->take_events()) events_.push_back(std::move(event));
    emit_events();
    if (over_) return;
    if (node_->gone()) return go({});
    if (node_->watched() != watched_) watch_.disconnect();
    work_.cancel();
    set_tick();
  }

  // The handler may destroy our owner, or call it.
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
    tick_timer_.expires_at(*due);
    tick_timer_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (error || !self || self->over_) return;
      self->tick_armed_.reset();
      self->node_->tick(now());
      self->follow();
    });
  }

  // ---- the end

  std::shared_ptr<Goodbye> farewell(EtcdTxn txn) const {
    return std::make_shared<Goodbye>(Goodbye{.servers = options_.servers, .txn = std::move(txn), .leases = leases_});
  }

  // Says the last words and gives the lease back, then done.
  void go(EtcdTxn words) {
    const auto goodbye = farewell(std::move(words));
    stop();
    asio::co_spawn(loop_, say(loop_, goodbye, Deadline::in(goodbye_timeout)),
                   [done = std::exchange(done_, nullptr)](const std::exception_ptr&) {
                     if (done) done();
                   });
  }

  void lose(Errc code, const std::string& text) {
    close();
    events_.emplace_back(ContactLost{Error(code, text)});
    emit_events();
    if (done_) asio::post(loop_, std::exchange(done_, nullptr));
  }

  void close() {
    over_ = true;
    for (auto* client : {&requests_, &beats_, &watch_}) client->close();
    for (auto* timer : {&work_, &beat_timer_, &tick_timer_, &rewatch_timer_, &finish_timer_}) timer->cancel();
  }

  // ---- for people

  void notice(const std::string& problem) {
    if (noticed_) return;
    noticed_ = true;
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

  std::string late_text() const {
    return fmt::format("this process came too late to keep its lease of {} at etcd: it was stopped, or had no time",
                       duration_text(ttl_));
  }

  const EtcdRendezvousOptions options_;
  const NodeInfo self_;
  const JobPolicy policy_;
  Handler handler_;

  asio::io_context& loop_;
  EtcdClient requests_;
  EtcdClient beats_;  // apart, so that a long answer does not hold them up
  EtcdClient watch_;
  asio::steady_timer work_;  // canceled when there may be something to write
  asio::steady_timer beat_timer_;
  asio::steady_timer tick_timer_;
  asio::steady_timer rewatch_timer_;
  asio::steady_timer finish_timer_;
  const Deadline::Clock::time_point began_;
  const Deadline join_deadline_;

  EtcdLeases leases_;
  seconds ttl_{};
  Deadline::Clock::time_point lease_end_{};  // by our clock; etcd's is never earlier
  std::optional<JobNode> node_;              // once there is a lease
  std::string watched_;
  std::optional<Membership::Time> tick_armed_;
  std::deque<RendezvousEvent> events_;
  bool emitting_ = false;
  bool noticed_ = false;
  bool over_ = false;  // nothing more is to happen
  std::function<void()> done_;
};

// ---- the handle

struct EtcdRendezvous::Farewell {
  std::shared_ptr<Goodbye> goodbye;
};

EtcdRendezvous::EtcdRendezvous(asio::io_context& loop, EtcdRendezvousOptions options)
    : loop_(loop), options_(std::move(options)) {}

EtcdRendezvous::~EtcdRendezvous() {
  if (session_) session_->stop();
  if (!farewell_ || !farewell_->goodbye || farewell_->goodbye->said) return;
  asio::io_context loop(1);
  asio::co_spawn(loop, say(loop, farewell_->goodbye, Deadline::in(destructor_timeout)), asio::detached);
  loop.run();
}

void EtcdRendezvous::join(const NodeInfo& self, const JobPolicy& policy, Handler handler) {
  if (session_) session_->stop();
  session_ = std::make_shared<Session>(loop_, options_, self, policy, std::move(handler));
  session_->start();
}

void EtcdRendezvous::ready(std::int64_t generation, std::uint16_t worker_store_port) {
  if (session_) session_->tell([&](JobNode& node) { node.ready(generation, worker_store_port); });
}

void EtcdRendezvous::report_success(std::int64_t generation) {
  if (session_) session_->tell([&](JobNode& node) { node.success(now(), generation); });
}

void EtcdRendezvous::report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures) {
  if (session_) session_->tell([&](JobNode& node) { node.failure(now(), generation, failures); });
}

void EtcdRendezvous::report_preempted(std::int64_t generation) {
  if (session_) session_->tell([&](JobNode& node) { node.preempted(now(), generation); });
}

void EtcdRendezvous::report_workers(std::int64_t, const std::vector<WorkerReport>&) {}

void EtcdRendezvous::request_stop(const std::string& who) {
  if (session_) session_->tell([&](JobNode& node) { node.request_stop(who); });
}

void EtcdRendezvous::leave(const std::string& reason) {
  if (session_) farewell_ = std::make_shared<Farewell>(Farewell{session_->leave(reason)});
}

void EtcdRendezvous::finish(Deadline deadline, std::function<void()> done) {
  if (!session_) return asio::post(loop_, std::move(done));
  session_->finish(deadline, std::move(done));
}

}  // namespace ddprun
