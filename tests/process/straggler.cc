// All ranks call an allreduce, except one, which stays in its own code until the given file exists.
//   straggler RANK FILE [PREFIX]
// With a prefix they do so in the second generation of an ElasticGroup with that key prefix instead of the job's.
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "common/environment.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/elastic_group.h"
#include "worker/comm/init.h"

using namespace ddprun;

namespace {

constexpr std::chrono::milliseconds any_silence(0);

void meet(ProcessGroup& group, const char* late, const char* file) {
  group.barrier()->wait();
  if (group.rank() == std::atoi(late))
    while (::access(file, F_OK) != 0) ::usleep(2000);
  std::vector<float> values(1000, 1.0f);
  group.allreduce(span_of(values))->wait();
}

void meet_in_elastic_group(const WorkerEnv& env, const std::string& prefix, const char* late, const char* file) {
  const auto connect = [&env] {
    return std::make_shared<TcpStore>(TcpStoreOptions{.host = env.master_addr, .port = env.master_port},
                                      Deadline::in(std::chrono::seconds(30)));
  };
  ElasticGroup elastic("auto", {.connect_store = connect, .prefix = prefix, .config = {.freeze_bound = any_silence}},
                       std::to_string(env.rank));
  std::vector<std::string> members;
  for (int rank = 0; rank < env.world_size; ++rank) members.push_back(std::to_string(rank));
  elastic.reconfigure(0, members).barrier()->wait();
  meet(elastic.reconfigure(1, members), late, file);
}

}  // namespace

int main(int argc, char** argv) try {
  const auto env = WorkerEnv::from(Environment::capture());
  if (argc > 3) {
    meet_in_elastic_group(env, argv[3], argv[1], argv[2]);
    return 0;
  }
  const auto world = init_process_group({.config = {.freeze_bound = any_silence}, .env = env});
  meet(world->group(), argv[1], argv[2]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
