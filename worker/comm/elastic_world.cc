#include "worker/comm/elastic_world.h"

#include <algorithm>
#include <chrono>

#include "common/error.h"
#include "common/log.h"
#include "rendezvous/recovery/store_notice.h"
#include "worker/comm/bootstrap/dial_ahead.h"
#include "worker/comm/bootstrap/job_store.h"
#include "worker/comm/bootstrap/local_address.h"
#include "worker/comm/registry/backends.h"

namespace ddprun {
namespace {

// How long a store is dialled before this process asks whether it has moved; later ones take twice as long.
constexpr std::chrono::seconds first_dial{1};

const WorkerEnv& require_agent_store(const WorkerEnv& env) {
  if (!env.use_agent_store)
    throw Error(Errc::usage, "rank 0 serves the store of this job, so the group cannot be formed again without it");
  return env;
}

std::unique_ptr<const StoreNoticeReader> open_notice(const WorkerEnv& env) try {
  return env.store_notice.empty() ? nullptr : std::make_unique<const StoreNoticeReader>(env.store_notice);
} catch (const Error& error) {
  log::debug("this process does not learn where the store moves: {}", error.what());
  return nullptr;
}

}  // namespace

ElasticWorld::ElasticWorld(const InitOptions& options, const std::string& prefix, const std::string& self)
    : env_(require_agent_store(options.env)),
      config_(comm::with_local_address(options.config, options.env)),
      backend_(options.backend),
      notice_(open_notice(env_)),
      dialled_ahead_(std::make_unique<comm::DialAhead>(
          [this](const std::stop_token& stop) { return dial(Deadline::in(first_dial), stop); })),
      group_(std::make_unique<ElasticGroup>(
          backend_,
          GroupOptions{.connect_store = [this] { return take_or_connect(); },
                       .prefix = prefix,
                       .config = config_,
                       .beside_store = comm::is_this_host(options.env.master_addr, options.env.master_port),
                       .previous_group = options.previous_group},
          self)) {
  if (!notice_) return;
  move_watch_ =
      std::jthread([this, moves = store_moves()](const std::stop_token& stop) { abort_at_moves(moves, stop); });
}

ElasticWorld::~ElasticWorld() {
  move_watch_.request_stop();
  if (notice_) notice_->wake();
}

void ElasticWorld::abort_at_moves(std::uint32_t moves, const std::stop_token& stop) {
  while (notice_->await_move(moves, Deadline::never(), stop)) {
    const auto now = notice_->read();
    moves = now.moves;
    group_->abort_before(now.generation, "the workers' store is served by another node");
  }
}

WorkerEnv ElasticWorld::env_now() const {
  auto env = env_;
  if (!notice_) return env;
  const auto place = notice_->read().place;
  if (place.host.empty()) return env;
  env.master_addr = place.host;
  env.master_port = place.port_or(0);
  env.store_socket.clear();  // it names the port of the store before
  return env;
}

std::shared_ptr<Store> ElasticWorld::connect(Deadline bound, const std::stop_token& stop) const {
  return dial(earlier(bound, comm::deadline_after(config_.timeout)), stop);
}

std::unique_ptr<ProcessGroup> ElasticWorld::form_beside(const std::string& prefix, int rank, int size,
                                                        const std::stop_token& stop) const {
  auto config = config_;
  config.timeout = std::min<std::chrono::milliseconds>(config.timeout, group_bound);
  return comm::make_group(backend_, {.rank = rank,
                                     .size = size,
                                     .connect_store = [this, stop] { return connect(Deadline::never(), stop); },
                                     .prefix = prefix,
                                     .config = config,
                                     .beside_store = is_beside_store(),
                                     .stop = stop});
}

void ElasticWorld::dial_ahead(int connections) {
  moves_at_dial_ = store_moves();
  dialled_ahead_->begin(connections);
}

std::shared_ptr<Store> ElasticWorld::take_or_connect() {
  if (store_moves() == moves_at_dial_)
    if (auto store = dialled_ahead_->take()) return store;
  return connect();
}

// A store that is being dialled may be lost with its host, which then answers no more.
std::shared_ptr<Store> ElasticWorld::dial(Deadline deadline, const std::stop_token& stop) const {
  for (auto longest = first_dial;; longest *= 2) {
    const auto env = env_now();
    const auto end = notice_ ? earlier(deadline, Deadline::in(longest)) : deadline;
    try {
      return comm::connect_job_store(env, config_, comm::job_credentials(env), end, stop);
    } catch (const Error& error) {
      if (error.code() != Errc::timeout || deadline.expired()) throw;
    }
  }
}

bool ElasticWorld::is_beside_store() const {
  const auto env = env_now();
  return comm::is_this_host(env.master_addr, env.master_port);
}

std::uint32_t ElasticWorld::store_moves() const {
  return notice_ ? notice_->read().moves : 0;
}

void ElasticWorld::await_store_move(std::uint32_t moves, Deadline deadline) const {
  constexpr std::chrono::milliseconds interval{200};
  do say_waiting();
  while (!notice_->await_move(moves, earlier(deadline, Deadline::in(interval))) && !deadline.expired());
}

void ElasticWorld::say_waiting() const {
  if (notice_) notice_->say_waiting();
}

}  // namespace ddprun
