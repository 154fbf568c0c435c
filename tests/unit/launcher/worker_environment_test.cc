#include "launcher/workers/worker_environment.h"

#include <algorithm>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

Round two_nodes() {
  Round round;
  round.generation = 3;
  round.self = 1;
  round.members = {{.node_id = "a", .host = "a", .address = "10.0.0.1", .group_rank = 0, .nproc = 2, .first_rank = 0},
                   {.node_id = "b", .host = "b", .address = "10.0.0.2", .group_rank = 1, .nproc = 3, .first_rank = 2}};
  round.world_size = 5;
  round.master_addr = "10.0.0.1";
  round.master_port = 4242;
  return round;
}

}  // namespace

TEST_CASE("a worker to which PMI-1 is served gets its variables, and none of another starter") {
  Environment agent;
  agent.set("PMIX_RANK", "7");
  agent.set("PMI_PORT", "host:1");
  const auto env = worker_environment(agent, {.pmi = true}, two_nodes(), 2, "", 5);
  CHECK(env.get("PMI_RANK") == "4");
  CHECK(env.get("PMI_SIZE") == "5");
  CHECK(env.get("PMI_FD") == "5");
  CHECK(env.get("MPI_LOCALRANKID") == "2");
  CHECK(env.get("MPI_LOCALNRANKS") == "3");
  CHECK_FALSE(env.get("PMIX_RANK"));
  CHECK_FALSE(env.get("PMI_PORT"));
  CHECK_FALSE(worker_environment(agent, {}, two_nodes(), 2, "").get("PMI_RANK"));
}

TEST_CASE("a worker's environment is the agent's and exactly the variables that torchrun adds") {
  const Environment agent({{"HOME", "/h"}, {"RANK", "stale"}});
  const auto env =
      worker_environment(agent, {.omp_threads = {6, 6, 5}, .role = "trainer", .run_id = "job", .max_restarts = 4},
                         two_nodes(), 2, "/e.json");
  const std::map<std::string, std::string, std::less<>> expected = {
      {"HOME", "/h"},
      {"RANK", "4"},
      {"WORLD_SIZE", "5"},
      {"LOCAL_RANK", "2"},
      {"LOCAL_WORLD_SIZE", "3"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "trainer"},
      {"ROLE_RANK", "4"},
      {"ROLE_WORLD_SIZE", "5"},
      {"MASTER_ADDR", "10.0.0.1"},
      {"MASTER_PORT", "4242"},
      {"TORCHELASTIC_RESTART_COUNT", "3"},
      {"TORCHELASTIC_MAX_RESTARTS", "4"},
      {"TORCHELASTIC_RUN_ID", "job"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_ERROR_FILE", "/e.json"},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"OMP_NUM_THREADS", "5"},
  };
  CHECK(env.values() == expected);
}

TEST_CASE("WorkerEnvironments returns the same environments as worker_environment") {
  const Environment agent({{"HOME", "/h"}, {"RANK", "stale"}, {"OMP_NUM_THREADS", "9"}});
  const WorkerEnvSpec spec{.omp_threads = {6, 16, 5}, .virtual_local_rank = true};
  const auto round = two_nodes();
  WorkerEnvironments environments(agent, spec, round);
  for (const int local_rank : {2, 0, 1, 1}) {
    const auto error_file = "/" + std::to_string(local_rank) + "/error.json";
    const auto of_worker = environments.of(local_rank, error_file);
    std::vector<std::string> entries(of_worker.begin(), of_worker.end());
    std::sort(entries.begin(), entries.end());
    auto expected = worker_environment(agent, spec, round, local_rank, error_file).entries();
    std::sort(expected.begin(), expected.end());
    CHECK(entries == expected);
  }
}

TEST_CASE("a standby process has the variables of no rank, and room for those of each") {
  const Environment agent({{"HOME", "/h"}, {"RANK", "stale"}, {"DDPRUN_STANDBY", "stale"}});
  WorkerEnvSpec spec{.omp_threads = {6, 6, 6}, .training_memory = "/proc/71/fd/9", .recovery = 0};
  const auto round = two_nodes();
  const auto text = [](std::span<const std::string> entries) {
    std::string all;
    for (const auto& entry : entries) all += entry + "\n";
    return all;
  };
  WorkerEnvironments environments(agent, spec, round);
  const auto standby = text(environments.of_standby("/e/error_3_0.json", 7));
  for (const auto* name : {"RANK=", "LOCAL_RANK=", "ROLE_RANK=", "DDPRUN_RECOVERY=", "DDPRUN_TRAINING_RECORD="})
    CHECK(("\n" + standby).find(std::string("\n") + name) == std::string::npos);
  CHECK(standby.find("\nOMP_NUM_THREADS=6\n") != std::string::npos);
  CHECK(standby.find("\nTORCHELASTIC_ERROR_FILE=/e/error_3_0.json\n") != std::string::npos);
  CHECK(standby.find("\nDDPRUN_STANDBY=7 ") != std::string::npos);

  spec.recovery = 1'000'000;
  WorkerEnvironments later(agent, spec, round);
  const auto worker = text(later.of(2, "/e/error_3_2.1000000.json"));
  CHECK(worker.size() <= standby.size());
  CHECK(worker.find("DDPRUN_STANDBY") == std::string::npos);
  CHECK(worker.find("\nDDPRUN_RECOVERY=1000000\n") != std::string::npos);
  // A program may have pointers to the shared variables, so these keep their places.
  const auto shared = worker.substr(0, worker.find("\nRANK="));
  CHECK(standby.starts_with(shared));
}

TEST_CASE("variables of NCCL and OpenMP that the user has set are kept") {
  const Environment agent({{"OMP_NUM_THREADS", "6"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}});
  const auto env = worker_environment(agent, {.agent_store = false}, two_nodes(), 0, "");
  CHECK(env.get("OMP_NUM_THREADS") == "6");
  CHECK(env.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0");
  CHECK(env.get("TORCHELASTIC_USE_AGENT_STORE") == "False");
  CHECK(env.get("TORCHELASTIC_ERROR_FILE") == "");
}

TEST_CASE("a single worker may use all cores") {
  auto round = two_nodes();
  round.members[1].nproc = 1;
  CHECK_FALSE(worker_environment({}, {}, round, 0, "").get("OMP_NUM_THREADS"));
}

TEST_CASE("the exported signals that end the job are this job's, not those of an outer launcher") {
  Environment agent;
  agent.set("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGUSR2");
  const auto env = worker_environment(agent, {.signals_to_handle = "SIGTERM,SIGUSR1"}, two_nodes(), 0, "");
  CHECK(env.get("TORCHELASTIC_SIGNALS_TO_HANDLE") == "SIGTERM,SIGUSR1");
}

TEST_CASE("with a virtual local rank every worker is local rank 0 and sees only its own GPU") {
  const WorkerEnvSpec spec{.virtual_local_rank = true};
  const auto env = worker_environment({}, spec, two_nodes(), 2, "");
  CHECK(env.get("LOCAL_RANK") == "0");
  CHECK(env.get("LOCAL_WORLD_SIZE") == "3");
  CHECK(env.get("RANK") == "4");
  CHECK(env.get("CUDA_VISIBLE_DEVICES") == "2");
  Environment listed;
  listed.set("CUDA_VISIBLE_DEVICES", "4,GPU-8a,6");
  CHECK(worker_environment(listed, spec, two_nodes(), 1, "").get("CUDA_VISIBLE_DEVICES") == "GPU-8a");
  CHECK(worker_environment(listed, {}, two_nodes(), 1, "").get("CUDA_VISIBLE_DEVICES") == "4,GPU-8a,6");
  CHECK(own_device(listed, 2) == "6");
  CHECK_THROWS_WITH(own_device(listed, 3),
                    "--virtual_local_rank: CUDA_VISIBLE_DEVICES = 4,GPU-8a,6 has no device for local rank 3");
}
