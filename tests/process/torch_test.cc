// PyTorch's DistributedDataParallel in a script without any reference to ddprun (ddp_script.py): a worker is killed
// during the training, the job restarts, and the result is correct.
#include <csignal>
#include <regex>

#include "tests/process/launch.h"
#include "tests/process/torch_job.h"
#include "tests/support/catch.h"
#include "tests/support/torch_python.h"

using namespace ddprun::testing;

namespace {

constexpr int held_step = 20;

// One node with n workers.
Words one_node(int workers, const Words& more) {
  Words options{"--standalone", "--max_restarts=1", "--nproc_per_node=" + std::to_string(workers)};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// Kills the job's rank 1 while all ranks wait at the hold step, then releases the job.
void kill_in_the_middle(const TorchJob& job, Child& node_of_rank_1) {
  node_of_rank_1.wait_for_out("rank 1 of ", torch_timeout);
  node_of_rank_1.wait_until([&] { return job.checkpoint_there(); }, "a checkpoint", torch_timeout);
  REQUIRE(::kill(pid_of_rank(node_of_rank_1.out(), 1), SIGKILL) == 0);
  job.release();
}

void check_restarted_and_correct(const TorchPython& python, const Child::Result& result) {
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.err, Catch::Contains("SIGKILL"));
  CHECK_THAT(result.out, Catch::Contains("attempt 1"));
  CHECK_FALSE(std::regex_search(result.out, std::regex("attempt 1, pid [0-9]+, begins at step 0\n")));
  CHECK_THAT(result.out, Catch::Contains("torch " + python.version_text + ": 40 steps, the result is right"));
}

void one_node_killed_in_the_middle(const TorchPython& python, int workers, const Words& options,
                                   Variables variables = {}) {
  CAPTURE(python.version_text, workers);
  const TorchJob job(python);
  auto node = job.start(one_node(workers, options), {"40", std::to_string(held_step), job.release_file()},
                        std::move(variables));
  kill_in_the_middle(job, node);
  check_restarted_and_correct(python, node.wait(torch_timeout));
}

void two_nodes_killed_in_the_middle(const TorchPython& python, Words options) {
  CAPTURE(python.version_text);
  const TorchJob job(python);
  const Words arguments{"40", std::to_string(held_step), job.release_file()};
  options.insert(options.begin(), {"--nnodes=2", "--nproc_per_node=2", "--max_restarts=1"});
  auto second_options = options;
  options.push_back("--node_rank=0");
  second_options.push_back("--node_rank=1");
  auto first = job.start(options, arguments);
  auto second = job.start(second_options, arguments);
  kill_in_the_middle(job, first);
  const auto from_second = second.wait(torch_timeout);
  INFO(from_second.out << from_second.err);
  CHECK(from_second.code == 0);
  check_restarted_and_correct(python, first.wait(torch_timeout));
}

Words c10d_endpoint() {
  return {"--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:" + std::to_string(free_port())};
}
Words static_endpoint() {
  return {"--rdzv_backend=static", "--master_addr=127.0.0.1", "--master_port=" + std::to_string(free_port())};
}
Words with(Words options, const std::string& more) {
  options.push_back(more);
  return options;
}

}  // namespace

// ---- PyTorch before 2.2: worker 0 serves the store

TEST_CASE("PyTorch before 2.2, 2 workers, one killed in the middle") {
  const auto python = find_old_torch();
  if (!python) SKIP(no_old_torch);
  one_node_killed_in_the_middle(*python, 2, {"--no_agent_store"});
}

TEST_CASE("PyTorch before 2.2, 4 workers, one killed in the middle, with torchrun's variable") {
  const auto python = find_old_torch();
  if (!python) SKIP(no_old_torch);
  one_node_killed_in_the_middle(*python, 4, {}, {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}});
}

TEST_CASE("PyTorch before 2.2, two agents with 2 workers each, one worker killed in the middle") {
  const auto python = find_old_torch();
  if (!python) SKIP(no_old_torch);
  two_nodes_killed_in_the_middle(*python, with(c10d_endpoint(), "--no_agent_store"));
}

TEST_CASE("PyTorch before 2.2, two static agents, one worker killed in the middle") {
  const auto python = find_old_torch();
  if (!python) SKIP(no_old_torch);
  two_nodes_killed_in_the_middle(*python, with(static_endpoint(), "--no_agent_store"));
}

TEST_CASE("PyTorch before 2.2 with an agent's store fails, and a line says what to do") {
  const auto python = find_old_torch();
  if (!python) SKIP(no_old_torch);
  const TorchJob job(*python);
  const auto result = job.start({"--standalone", "--nproc_per_node=2"}, {"5"}).wait(torch_timeout);
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Catch::Contains("PyTorch before 2.2, which needs ddprun's --no_agent_store"));
}

// ---- current PyTorch: the agent serves it

TEST_CASE("current PyTorch, 2 and 4 workers, one killed in the middle") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  one_node_killed_in_the_middle(*python, GENERATE(2, 4), {});
}

TEST_CASE("current PyTorch, two agents with 2 workers each, one worker killed in the middle") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  two_nodes_killed_in_the_middle(*python, c10d_endpoint());
}

// The workers use the endpoint's store in every round; PyTorch expects a new store in each.
TEST_CASE("current PyTorch, two static agents, one worker killed in the middle") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  two_nodes_killed_in_the_middle(*python, static_endpoint());
}

TEST_CASE("current PyTorch with the store at worker 0, either of its servers") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  const std::string libuv = GENERATE("1", "0");
  CAPTURE(libuv);
  one_node_killed_in_the_middle(*python, 2, {"--no_agent_store"}, {{"USE_LIBUV", libuv}});
}
