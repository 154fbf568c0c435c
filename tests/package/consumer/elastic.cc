// Ranks that add numbers together. When one of them dies the others continue without it, in the same processes.
#include <algorithm>
#include <cstdio>
#include <string>
#include <unistd.h>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/common/error.h"
#include "ddprun/rendezvous/store/tcp_store.h"
#include "ddprun/worker/comm/elastic_group.h"
#include "ddprun/worker/comm/launch_env.h"

using namespace std::chrono_literals;

namespace {

// Runs for ever while all ranks are here, or a hundred steps if one is missing.
void add_up(ddprun::ProcessGroup& group, bool all_here) {
  for (int step = 1; all_here || step <= 100; ++step) {
    std::vector<float> sum{1.0f};
    group.allreduce(ddprun::span_of(sum), {}, {.blocking = true});
    if (group.rank() > 0 || step != 100) continue;
    std::printf("100 steps of %g ranks\n", static_cast<double>(sum[0]));
    std::fflush(stdout);
  }
}

void tell(const std::string& self, const ddprun::MembershipChange& change) {
  for (const auto& each : change.gone) {
    std::printf("%s goes on without %s, which was rank %d (%s): %s\n", self.c_str(), each.name.c_str(), each.rank,
                each.process.c_str(), each.cause.c_str());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  const auto env = ddprun::WorkerEnv::from(ddprun::Environment::capture());
  const auto attempt = "/elastic/" + std::to_string(env.restart_count) + "/";  // keys apart from those of a restart
  const auto connect = [&] {
    return std::make_shared<ddprun::TcpStore>(
        ddprun::TcpStoreOptions{.host = env.master_addr, .port = env.master_port, .key_prefix = attempt},
        ddprun::Deadline::in(30s));
  };
  const auto self = std::to_string(env.rank);
  std::vector<std::string> members;
  for (int rank = 0; rank < env.world_size; ++rank) members.push_back(std::to_string(rank));
  ddprun::ElasticGroup elastic(argc > 1 ? argv[1] : "auto", {.connect_store = connect, .config = {.timeout = 60s}},
                               self);
  std::printf("rank %s is pid %d\n", self.c_str(), ::getpid());
  std::fflush(stdout);

  std::uint64_t generation = 0;
  for (bool done = false; !done;) try {
      auto& group = elastic.reconfigure(generation, members);
      tell(self, elastic.change());
      add_up(group, members.size() == static_cast<std::size_t>(env.world_size));
      done = true;
    } catch (const ddprun::Error& error) {
      std::fprintf(stderr, "rank %s goes on: %s\n", self.c_str(), error.what());
      members = elastic.survivors();
      // The members never joined, or the others continued without this process: it was frozen, or cut off.
      if (std::find(members.begin(), members.end(), self) == members.end()) throw;
      if (error.code() != ddprun::Errc::aborted) ++generation;  // otherwise it was not formed, and may be tried again
    }
} catch (const ddprun::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
