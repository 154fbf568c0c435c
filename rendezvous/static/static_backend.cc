// The static back end: torchrun's static rendezvous on the wire. Node rank 0 serves the store, each node declares its
// rank, all nodes have to join, and the workers use the same store. If all agents are ddprun's, rounds, failures and
// the job result travel over sessions to that server, job-wide as with c10d. With a torchrun agent among them this
// agent behaves as torchrun's does: it restarts its own workers with its own budget, and synchronizes with the others
// at torchrun's exit barrier.
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "rendezvous/backend.h"
#include "rendezvous/hosting/endpoint.h"
#include "rendezvous/hosting/hosted_endpoint.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/session_client.h"
#include "rendezvous/membership/worker_failure.h"
#include "rendezvous/static/static_exchange.h"
#include "rendezvous/store/host_lookup.h"
#include "rendezvous/store/prefix_store.h"
#include "rendezvous/store/tcp_store.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
constexpr auto dial_slice = std::chrono::seconds(2);           // after this time the user learns what is being dialled
constexpr auto lookup_pause = std::chrono::milliseconds(200);  // between two attempts: a name may appear later
constexpr auto exit_barrier_timeout = std::chrono::seconds(300);

// Returns early after a stop request.
void pause(Deadline end, const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait_until(lock, stop, *end.when(), [] { return false; });
}

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
  std::string text() const { return format_host_port(host, port); }
};

// Makes one attempt at each address of the endpoint's name; returns the problem in `problem`.
std::shared_ptr<TcpStore> dial_once(const Endpoint& endpoint, Deadline deadline, const std::stop_token& stop,
                                    std::string& problem) {
  const auto addresses = rendezvous::look_up_host(endpoint.host, endpoint.port, deadline, stop);
  problem = addresses.problem;
  for (const auto& address : addresses.found) {
    try {
      return std::make_shared<TcpStore>(TcpStoreOptions{.host = address.text(), .port = endpoint.port, .stop = stop},
                                        earlier(deadline, Deadline::in(dial_slice)));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
      problem = error.what();
    }
  }
  return nullptr;
}

// Dials until a server replies; calls waiting once if that takes long.
std::shared_ptr<TcpStore> dial(const Endpoint& endpoint, Deadline deadline, const std::stop_token& stop,
                               const std::function<void(const std::string&)>& waiting) {
  const auto began = Deadline::Clock::now();
  for (bool said = false;; said = true) {
    std::string problem;
    if (auto store = dial_once(endpoint, deadline, stop, problem)) return store;
    if (stop.stop_requested()) throw make_error(Errc::aborted, "the rendezvous was stopped");
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - began);
    if (deadline.expired())
      throw make_error(
          Errc::timeout,
          "no store at {} within {}; the agent of node rank 0 serves it: check that it runs, with the same "
          "address and port (the last error: {})",
          endpoint.text(), duration_text(waited), problem);
    if (!said) waiting(fmt::format("no store at {} yet ({}); node rank 0 serves it", endpoint.text(), problem));
    pause(earlier(deadline, Deadline::in(lookup_pause)), stop);
  }
}

}  // namespace

// Ownership: the loop must outlive it. Threads: calls on the loop; the blocking exchange runs on a separate thread and
// posts its result to the loop. Errors: those of SessionClient.
class StaticRendezvous final : public Rendezvous {
 public:
  StaticRendezvous(asio::io_context& loop, Endpoint endpoint) : loop_(loop), endpoint_(std::move(endpoint)) {}

  ~StaticRendezvous() override { stop_.request_stop(); }

  void join(const NodeInfo& self, const JobPolicy& policy, Handler handler) override {
    stop_.request_stop();  // ends a previous join
    helper_ = std::jthread();
    stop_ = std::stop_source();
    alive_ = std::make_shared<bool>(true);
    self_ = self;
    policy_ = policy;
    policy_.fixed_ranks = true;
    policy_.min_nodes = policy_.max_nodes;
    handler_ = std::move(handler);
    client_.reset();
    generation_ = restarts_used_ = 0;
    helper_ = std::jthread([this, stop = stop_.get_token()] { exchange(stop); });
  }

  void ready(std::int64_t generation, std::uint16_t worker_store_port) override {
    if (client_) return client_->ready(generation, worker_store_port);
    if (generation != generation_ || started_) return;
    started_ = true;
    later([this] { emit(RoundStarted{round_}); });
  }

  void report_success(std::int64_t generation) override {
    if (client_) return client_->report_success(generation);
    if (generation != generation_ || !started_) return;
    helper_ = std::jthread([this, stop = stop_.get_token()] {
      wait_at_exit_barrier(*job_store_, policy_.max_nodes, Deadline::in(exit_barrier_timeout), stop);
      const std::string reason = fmt::format("all {} of this node ended with 0", count_text(self_.nproc, "worker"));
      later([this, reason] { emit(JobEnded{{.success = true, .exit_code = exit_success, .reason = reason}}); });
    });
  }

  // torchrun has no counterpart, so only this node ends.
  void report_preempted(std::int64_t generation) override {
    if (client_) return client_->report_preempted(generation);
    if (generation != generation_ || !started_) return;
    end_here(exit_preempted, "preempted: the workers of this node have saved their state and stopped");
  }

  void report_node(std::int64_t generation, const NodeReport& report) override {
    if (client_) client_->report_node(generation, report);
  }

  void request_stop(const std::string& who) override {
    if (client_) return client_->request_stop(who);
    end_here(exit_for_signal(SIGTERM), "stopped by " + who);
  }

  void report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures,
                      Survivors survivors) override {
    if (client_) return client_->report_failure(generation, failures, survivors);
    if (generation != generation_ || !started_ || failures.empty()) return;
    const std::string cause = job_result_text(failures.front(), policy_.max_nodes);
    if (restarts_used_ == policy_.max_restarts || failures.front().usage_error) {
      const JobResult result{.exit_code = exit_code_of(failures.front()), .reason = cause, .failures = failures};
      return later([this, result] { emit(JobEnded{result}); });
    }
    ++restarts_used_;
    ++generation_;
    const std::string reason =
        fmt::format("{}; restart {} of {} of this node", cause, restarts_used_, policy_.max_restarts);
    later([this, reason] { propose(reason); });
  }

  bool relays() const override { return client_ != nullptr; }
  bool relay(const RelayMessage& message) override { return client_ && client_->relay(message); }
  void on_relay(RelayHandlers handlers) override { relay_handlers_ = std::move(handlers); }

  void leave(const std::string& reason) override {
    handler_ = nullptr;
    if (client_) client_->leave(reason);
    stop_.request_stop();
  }

 private:
  void end_here(int exit_code, const std::string& reason) {
    later([this, exit_code, reason] { emit(JobEnded{{.exit_code = exit_code, .reason = reason}}); });
  }

  // ---- on the helper thread

  void exchange(const std::stop_token& stop) {
    try {
      const Deadline deadline = Deadline::in(policy_.join_timeout);
      const auto waiting = [this](const std::string& text) { later([this, text] { emit(RendezvousWaiting{text}); }); };
      const auto store = dial(endpoint_, deadline, stop, waiting);
      store->join(deadline);
      const auto job_store = std::make_shared<PrefixStore>(policy_.run_id, store);
      const RoleInfo self{.rank = self_.node_rank.value_or(0), .local_world_size = self_.nproc, .ddprun = true};
      const StaticGroup group =
          exchange_static_ranks(*job_store,
                                {.self = self,
                                 .nnodes = policy_.max_nodes,
                                 .run_id = policy_.run_id,
                                 .endpoint = endpoint_.text(),
                                 .torch_server = store->has_ddprun_extensions() ? nullptr : store.get()},
                                deadline, stop, waiting);
      later([this, job_store, group] { begin(job_store, group); });
    } catch (const Error& error) {
      later([this, error] { emit(ContactLost{error}); });
    }
  }

  // Runs action on the loop, unless this object has been destroyed or join() called again by then.
  template <class Action>
  void later(Action action) {
    asio::post(loop_, [weak = std::weak_ptr(alive_), action = std::move(action)] {
      if (const auto alive = weak.lock()) action();
    });
  }

  // ---- on the loop

  void begin(std::shared_ptr<Store> job_store, const StaticGroup& group) {
    if (!handler_) return;
    if (group.all_ddprun) return begin_session();
    if (!policy_.agent_store)
      return emit(ContactLost{
          make_error(Errc::usage, "--no_agent_store: a torchrun agent takes part, whose workers use the store at {}",
                     endpoint_.text())});
    job_store_ = std::move(job_store);
    emit(RendezvousWaiting{"a torchrun agent takes part: each node restarts its own workers"});
    round_ = round_of(group);
    propose("first round");
  }

  void begin_session() {
    client_ =
        std::make_unique<SessionClient>(loop_, SessionClientOptions{.host = endpoint_.host, .port = endpoint_.port});
    client_->on_relay(relay_handlers_);
    client_->join(self_, policy_, [this](RendezvousEvent event) {
      auto* started = std::get_if<RoundStarted>(&event);
      if (started && policy_.agent_store) set_master(started->round);
      emit(std::move(event));
    });
  }

  // The workers get the address as the user typed it.
  void set_master(Round& round) const {
    round.master_addr = endpoint_.host;
    round.master_port = endpoint_.port;
  }

  // Only the rank and size of other nodes are known, so they are named by their rank.
  Round round_of(const StaticGroup& group) const {
    Round round;
    for (const auto& node : group.nodes) {
      const bool self = node.rank == self_.node_rank.value_or(0);
      const std::string name = fmt::format("node-rank-{}", node.rank);
      round.members.push_back({.node_id = self ? self_.id : name,
                               .host = self ? self_.host : name,
                               .address = self && !self_.address.empty() ? self_.address : name,
                               .group_rank = node.rank,
                               .nproc = node.local_world_size,
                               .first_rank = round.world_size});
      if (self) round.self = node.rank;
      round.world_size += node.local_world_size;
    }
    return round;
  }

  void propose(const std::string& reason) {
    started_ = false;
    round_.generation = generation_;
    round_.restarts_used = restarts_used_;
    round_.master_addr.clear();
    const Round proposed = round_;
    set_master(round_);
    emit(RoundProposed{proposed, reason});
  }

  void emit(RendezvousEvent event) {
    if (const Handler handler = handler_) handler(std::move(event));
  }

  asio::io_context& loop_;
  const Endpoint endpoint_;
  NodeInfo self_;
  JobPolicy policy_;
  Handler handler_;
  RelayHandlers relay_handlers_;
  std::unique_ptr<SessionClient> client_;  // if all agents are ddprun's

  std::shared_ptr<Store> job_store_;  // if a torchrun agent takes part
  Round round_;
  std::int64_t generation_ = 0;
  int restarts_used_ = 0;
  bool started_ = false;

  std::shared_ptr<bool> alive_;
  std::stop_source stop_;  // ends the blocking calls of a join
  std::jthread helper_;    // last, so that it is joined before the members it uses are destroyed
};

namespace {

class StaticBackend final : public RendezvousBackend {
 public:
  StaticBackend(asio::io_context& loop, const BackendOptions& options)
      : loop_(loop), endpoint_{options.host, options.port}, rendezvous_(loop, endpoint_) {
    const bool serve = options.is_host.value_or(*options.node_rank == 0);
    auto server =
        serve_endpoint(loop, options.host, options.port, serve ? Hosting::required : Hosting::never, options.admission);
    if (!server) return;
    hosted_ = std::make_unique<HostedEndpoint>(loop, std::move(server));
    hosted_->hub().on_round_start([this](const std::string& run_id, std::int64_t generation) {
      if (generation > 0 && hosted_->hub().jobs() == 1) erase_workers_keys(run_id);
    });
  }

  Rendezvous& rendezvous() override { return rendezvous_; }
  std::string endpoint() const override { return endpoint_.text(); }
  bool is_host() const override { return hosted_ != nullptr; }
  bool serves_workers() const override { return true; }
  void on_server_failure(std::chrono::milliseconds bound, std::function<void(const Error&)> failed) override {
    if (hosted_) hosted_->server().on_accept_failure(bound, std::move(failed));
  }
  void withdraw(const std::string& reason) override {
    rendezvous_.leave(reason);
    if (hosted_) hosted_->withdraw(reason);
  }
  void drain(std::chrono::milliseconds results, std::function<void()> done) override {
    if (hosted_)
      hosted_->drain(results, std::move(done));
    else
      asio::post(loop_, std::move(done));
  }

 private:
  // The workers of every round use this store, and newer PyTorch versions expect an empty one in each round. The
  // agents' keys stay, for agents that join later.
  void erase_workers_keys(const std::string& run_id) {
    const std::string agents = fmt::format("/{}/torchelastic/", run_id);
    hosted_->server().erase_if([&](std::string_view key) { return key != "init/" && !key.starts_with(agents); });
  }

  asio::io_context& loop_;
  const Endpoint endpoint_;
  std::unique_ptr<HostedEndpoint> hosted_;
  StaticRendezvous rendezvous_;  // destroyed first
};

}  // namespace

OpenBackend open_static;
std::unique_ptr<RendezvousBackend> open_static(asio::io_context& loop, const BackendOptions& options) {
  if (!options.node_rank || *options.node_rank < 0)
    throw make_error(Errc::usage, "the static rendezvous needs --node_rank: the rank of this node, from 0");
  if (options.port == 0)
    throw make_error(Errc::usage, "the static rendezvous at {} needs a port that every node knows: --master_port",
                     options.host);
  return std::make_unique<StaticBackend>(loop, options);
}

}  // namespace ddprun
