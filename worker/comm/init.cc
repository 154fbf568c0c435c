#include "worker/comm/init.h"

#include <algorithm>
#include <optional>
#include <unistd.h>
#include <vector>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "rendezvous/progress/rank_record.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/prefix_store.h"
#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/bootstrap/job_store.h"
#include "worker/comm/bootstrap/local_address.h"
#include "worker/comm/elastic/peer_list.h"
#include "worker/comm/execution/previous_group.h"
#include "worker/comm/group_options.h"
#include "worker/comm/health/group_failure.h"
#include "worker/comm/memory/segment_reserve.h"
#include "worker/comm/registry/backends.h"

namespace ddprun {
namespace {

// The time for which rank 0 still serves the store for ranks that have not left: ranks that still work, which then
// continue without a store, and, after a failure, ranks that only read its cause.
constexpr std::chrono::milliseconds linger_timeout{30'000};
constexpr std::chrono::milliseconds linger_after_failure{2'000};

std::unique_ptr<StoreServerThread> serve_store(const WorkerEnv& env) {
  const auto address = name_to_resolve(env.master_addr);
  try {
    return std::make_unique<StoreServerThread>(
        StoreServerOptions{.host = is_loopback_address(address) ? address : "", .port = env.master_port});
  } catch (const Error& error) {
    throw make_error(error.code(), "rank 0 cannot serve the store at MASTER_PORT {}: {}", env.master_port,
                     error.what());
  }
}

// With one rank there is nothing to connect.
class SingleProcessWorld : public World {
 public:
  explicit SingleProcessWorld(const InitOptions& options)
      : env_(options.env),
        group_(comm::make_group(options.backend, {.connect_store = [this] { return store_.another_client(); },
                                                  .config = options.config,
                                                  .previous_group = options.previous_group})) {}
  ProcessGroup& group() override { return *group_; }
  Store& store() override { return store_; }
  const WorkerEnv& env() const override { return env_; }

 private:
  const WorkerEnv env_;
  MemoryStore store_;
  const std::unique_ptr<ProcessGroup> group_;
};

class JoinedWorld : public World {
 public:
  explicit JoinedWorld(const InitOptions& options);
  ~JoinedWorld() override;
  ProcessGroup& group() override { return *group_; }
  Store& store() override { return *store_; }
  const WorkerEnv& env() const override { return env_; }

 private:
  std::shared_ptr<TcpStore> connect() const {
    return comm::connect_job_store(env_, config_, credentials_, comm::deadline_after(config_.timeout));
  }
  std::string left_key(int rank) const { return worker_prefix(env_.restart_count) + "/left/" + std::to_string(rank); }
  std::string group_prefix() const { return worker_prefix(env_.restart_count) + "/group/0/"; }
  void make_group(const InitOptions& options);
  void report_failure(Errc code, const char* why) noexcept;
  // Where rank 0 serves the store, it returns once the others have left or died, or the linger time has passed.
  void leave(std::chrono::milliseconds linger) noexcept;

  const WorkerEnv env_;
  const CommConfig config_;
  const bool hosting_;                                    // rank 0 serves the store
  const std::shared_ptr<const Credentials> credentials_;  // null if no token is sent
  std::unique_ptr<StoreServerThread> server_;
  std::shared_ptr<TcpStore> client_;
  std::unique_ptr<PrefixStore> store_;
  std::unique_ptr<ProcessGroup> group_;
};

JoinedWorld::JoinedWorld(const InitOptions& options)
    : env_(options.env),
      config_(options.config),
      hosting_(!options.env.use_agent_store),
      credentials_(comm::job_credentials(options.env)) {
  if (hosting_ && env_.rank == 0) server_ = serve_store(env_);
  client_ = connect();
  if (hosting_) client_->set_will(left_key(env_.rank), "lost", comm::deadline_after(config_.timeout));
  store_ = std::make_unique<PrefixStore>(worker_prefix(env_.restart_count) + "/user", client_);
  try {
    make_group(options);
  } catch (const std::exception& error) {
    // The other ranks read the cause in the store before it closes.
    const auto* const known = dynamic_cast<const Error*>(&error);
    report_failure(known ? known->code() : Errc::internal, error.what());
    leave(linger_after_failure);
    throw;
  }
}

// The others do not wait for a rank that failed before it joined the group. One that had joined reported it already.
void JoinedWorld::report_failure(Errc code, const char* why) noexcept {
  comm::report_failure(
      *client_, group_prefix(),
      {code, fmt::format("rank {} (pid {} on host {}): {}", env_.rank, ::getpid(), local_host_name(), why)},
      Deadline::in(linger_after_failure));
}

void JoinedWorld::make_group(const InitOptions& options) {
  GroupOptions group{.rank = env_.rank,
                     .size = env_.world_size,
                     .connect_store = [this] { return connect(); },
                     .prefix = group_prefix(),
                     .config = comm::with_local_address(options.config, env_),
                     .previous_group = options.previous_group};
  if (hosting_) group.store_host = 0;
  group.beside_store = comm::is_this_host(env_.master_addr, env_.master_port);
  group_ = comm::make_group(options.backend, group);
}

JoinedWorld::~JoinedWorld() {
  group_.reset();
  leave(linger_timeout);
}

void JoinedWorld::leave(std::chrono::milliseconds linger) noexcept try {
  if (!hosting_) return;
  client_->set(left_key(env_.rank), "left", Deadline::in(linger_after_failure));
  if (!server_) return;
  server_->announce_end();
  const bool failed = client_->check({group_prefix() + "failure"}, Deadline::in(linger_after_failure));
  std::vector<std::string> keys;
  for (int rank = 0; rank < env_.world_size; ++rank) keys.push_back(left_key(rank));
  client_->wait(keys, Deadline::in(std::min(config_.timeout, failed ? linger_after_failure : linger)));
} catch (const Error& error) {
  log::debug("cannot leave the store: {}", error.what());
}

}  // namespace

std::shared_ptr<comm::PreviousGroup> reserve_for_next_group() {
  return std::make_shared<comm::PreviousGroup>(
      comm::PreviousGroup{.segments = std::make_shared<comm::SegmentReserve>(comm::SegmentReserve::Options{})});
}

std::unique_ptr<World> init_process_group(const InitOptions& given) {
  auto options = given;
  options.env = ask_mpi(options.env, options.config.timeout);
  comm::check({.rank = options.env.rank, .size = options.env.world_size, .config = options.config});
  if (options.env.world_size == 1) return std::make_unique<SingleProcessWorld>(options);
  return std::make_unique<JoinedWorld>(options);
}

}  // namespace ddprun
