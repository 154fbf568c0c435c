// Ranks that add up together. When one of them dies the others go on without it, in the same processes.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/tcp_store.h"
#include "ddprun/worker/comm/elastic_group.h"
#include "ddprun/worker/comm/worker_env.h"

using namespace std::chrono_literals;
using Members = std::vector<std::string>;

namespace {

ddprun::Deadline soon() {
  return ddprun::Deadline::in(30s);
}

// Those whose last wills the store has not carried out.
Members living(ddprun::Store& store, const Members& members) {
  Members names;
  for (const auto& name : members)
    if (!store.check({"lost/" + name}, soon())) names.push_back(name);
  return names;
}

// The group's error may come a moment before the store sees the death: this returns when it has.
Members survivors(ddprun::Store& store, const Members& members) {
  for (const auto deadline = soon(); !deadline.expired(); std::this_thread::sleep_for(10ms))
    if (auto names = living(store, members); names.size() < members.size()) return names;
  throw ddprun::Error(ddprun::Errc::timeout, "nobody has died: a rank is frozen, or the network failed");
}

// For ever while all are here; without somebody, a hundred steps.
void add_up(ddprun::ProcessGroup& group, bool all_here) {
  for (int step = 1; all_here || step <= 100; ++step) {
    std::vector<float> sum{1.0f};
    group.allreduce(ddprun::span_of(sum), {}, {.blocking = true});
    if (group.rank() > 0 || step != 100) continue;
    std::printf("100 steps of %g ranks\n", static_cast<double>(sum[0]));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const auto env = ddprun::WorkerEnv::from(ddprun::Environment::capture());
  const auto attempt = "/elastic/" + std::to_string(env.restart_count) + "/";  // keys apart from those of a restart
  const auto connect = [&] {
    return std::make_shared<ddprun::TcpStore>(
        ddprun::TcpStoreOptions{.host = env.master_addr, .port = env.master_port, .key_prefix = attempt}, soon());
  };
  const auto self = std::to_string(env.rank);
  const auto store = connect();
  store->set_will("lost/" + self, "", soon());  // however this process ends: who is done is gone, too

  Members members;
  for (int rank = 0; rank < env.world_size; ++rank) members.push_back(std::to_string(rank));
  ddprun::ElasticGroup elastic(argc > 1 ? argv[1] : "auto", {.connect_store = connect, .timeout = 60s}, self);
  std::printf("rank %s is pid %d\n", self.c_str(), ::getpid());
  std::fflush(stdout);

  std::uint64_t generation = 0;
  for (bool done = false; !done;) try {
      add_up(elastic.reconfigure(generation, members), members.size() == static_cast<std::size_t>(env.world_size));
      done = true;
    } catch (const ddprun::Error& error) {
      std::fprintf(stderr, "rank %s goes on: %s\n", self.c_str(), error.what());
      const bool formed = error.code() != ddprun::Errc::aborted;  // or else the same generation is tried again
      generation += formed ? 1 : 0;
      members = formed ? survivors(*store, members) : living(*store, members);
    }
} catch (const ddprun::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
