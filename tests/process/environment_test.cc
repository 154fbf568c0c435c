#include <algorithm>
#include <set>

#include "tests/process/launch.h"
#include "tests/support/catch.h"

using namespace ddprun::testing;

namespace {

using Map = std::map<std::string, std::string>;

// The environment that local rank 1 printed.
Map environment_of_rank_1(const std::string& out) {
  Map result;
  const std::string prefix = "[default1]:";
  for (const auto& line : lines_of(out)) {
    if (!line.starts_with(prefix)) continue;
    const auto entry = line.substr(prefix.size());
    const auto equals = entry.find('=');
    if (equals != std::string::npos) result[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return result;
}

}  // namespace

TEST_CASE("a worker's environment is ddprun's own and torchrun's variables, and what ddprun adds is listed") {
  // The launcher is started with a known environment.
  const Words line = {"/usr/bin/env",     "-i",
                      "HOME=/h",          "PATH=/usr/bin:/bin",
                      DDPRUN_PROGRAM,     "--nproc_per_node=2",
                      "--max_restarts=2", "--rdzv_id=job",
                      VICTIM_PROGRAM,     "env"};
  auto env = environment_of_rank_1(run_child(line).out);
  const Map fixed = {{"HOME", "/h"},
                     {"PATH", "/usr/bin:/bin"},
                     {"RANK", "1"},
                     {"WORLD_SIZE", "2"},
                     {"LOCAL_RANK", "1"},
                     {"LOCAL_WORLD_SIZE", "2"},
                     {"GROUP_RANK", "0"},
                     {"GROUP_WORLD_SIZE", "1"},
                     {"ROLE_NAME", "default"},
                     {"ROLE_RANK", "1"},
                     {"ROLE_WORLD_SIZE", "2"},
                     {"TORCHELASTIC_RESTART_COUNT", "0"},
                     {"DDPRUN_RECOVERY", "0"},
                     {"TORCHELASTIC_MAX_RESTARTS", "2"},
                     {"TORCHELASTIC_RUN_ID", "job"},
                     {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                     {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                     {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}};
  for (const auto& [name, value] : fixed) {
    INFO(name);
    CHECK(env[name] == value);
    env.erase(name);
  }
  CHECK_FALSE(env["MASTER_ADDR"].empty());
  CHECK(std::stoi(env["MASTER_PORT"]) > 0);
  CHECK(std::stoi(env["OMP_NUM_THREADS"]) > 0);  // placement_test.cc tests the number
  CHECK(env["TORCHELASTIC_ERROR_FILE"].ends_with("/error_0_1.json"));
  CHECK_THAT(env["DDPRUN_TRAINING_RECORD"], Catch::StartsWith("/proc/") && Catch::EndsWith(":1"));
  CHECK_THAT(env["DDPRUN_STORE_SOCKET"], Catch::StartsWith(env["MASTER_PORT"] + ":/") && Catch::EndsWith(".sock"));
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "TORCHELASTIC_ERROR_FILE",
                           "DDPRUN_TRAINING_RECORD", "DDPRUN_STORE_SOCKET"})
    env.erase(name);
  std::set<std::string> unexpected;
  for (const auto& [name, value] : env)
    if (!name.ends_with("SAN_OPTIONS")) unexpected.insert(name);
  CHECK(unexpected.empty());
}

TEST_CASE("${local_rank} in arguments is replaced by the worker's local rank, and nothing else is") {
  const auto out = run_child(command(two_workers(), {"out=${local_rank} $local_rank $$\\n"})).out;
  auto lines = lines_of(out);
  std::sort(lines.begin(), lines.end());
  CHECK(lines == Words{"[default0]:0 $local_rank $$", "[default1]:1 $local_rank $$"});
}

TEST_CASE("ddprun raises its own limit of open files, and each worker gets the limit that ddprun was started with") {
  const auto result = run_child({"/bin/sh", "-c", "ulimit -Sn 64; exec \"$@\"", "sh", DDPRUN_PROGRAM,
                                 "--nproc_per_node=40", "/bin/sh", "-c", "ulimit -Sn"});
  INFO(result.err);
  CHECK(result.code == 0);
  const auto lines = lines_of(result.out);
  CHECK(lines.size() == 40);
  for (const auto& line : lines) CHECK(line.ends_with("]:64"));
}

TEST_CASE("with a virtual local rank each worker sees its own GPU, and the error files keep the real local rank") {
  const auto result =
      run_child(command(two_workers({"--virtual-local-rank"}), {"env"}), {{"CUDA_VISIBLE_DEVICES", "6,7"}});
  const auto env = environment_of_rank_1(result.out);
  CHECK(env.at("LOCAL_RANK") == "0");
  CHECK(env.at("RANK") == "1");
  CHECK(env.at("CUDA_VISIBLE_DEVICES") == "7");
  CHECK(env.at("TORCHELASTIC_ERROR_FILE").ends_with("/error_0_1.json"));
}
