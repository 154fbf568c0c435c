// PyTorch's DistributedDataParallel in a script without any reference to ddprun (ddp_script.py): a worker is killed
// during the training, the job restarts, and the result is correct.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <regex>

#include "tests/process/launch.h"
#include "tests/process/torch_job.h"
#include "tests/support/catch.h"
#include "tests/support/torch_python.h"

using namespace ddprun::testing;

namespace {

constexpr int held_step = 20;

// Returns the options of one node with n workers.
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

// ---- a store of the script's own, at which PyTorch makes every rank a client if an agent serves the store

namespace {

constexpr const char* own_store_script =
    "import os, sys, torch.distributed as dist\n"
    "dist.init_process_group('gloo', init_method='tcp://127.0.0.1:' + sys.argv[1], rank=int(os.environ['RANK']),\n"
    "                        world_size=2)\n"
    "print('rank', dist.get_rank(), 'has met the other', flush=True)\n";

Child own_store_job(const TorchPython& python, const TempDir& folder, const Words& options) {
  std::ofstream(folder / "own_store.py") << own_store_script;
  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {(folder / "own_store.py").string(), std::to_string(free_port())});
  return Child(words, {{"PYTHON_EXEC", python.path}, {"OMP_NUM_THREADS", "1"}, {"GLOO_SOCKET_IFNAME", "lo"}});
}

}  // namespace

TEST_CASE("a script that waits for a store of its own is named in a line, with the way out") {
  const auto python = find_torch({1, 11});
  if (!python) SKIP("no python3 here has torch 1.11 or newer (Debian 12: python3-torch)");
  const TempDir folder;
  auto job = own_store_job(*python, folder, {});
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  constexpr const char* hint = "has been trying for 10 s to connect to an address at which nobody listens";
  constexpr const char* met = "has met the other";
  job.wait_until([&] { return has(job.err(), hint) || has(job.out(), met); }, "a hint", torch_timeout);
  if (has(job.out(), met)) SKIP("torch " + python->version_text + " opens a script's own store");
  job.wait_for_err("or start ddprun with --no_agent_store\n");
  job.signal(SIGTERM);
  CHECK(job.wait().out.empty());
}

TEST_CASE("with --no_agent_store a script may open a store of its own") {
  const auto python = find_torch({1, 11});
  if (!python) SKIP("no python3 here has torch 1.11 or newer (Debian 12: python3-torch)");
  const TempDir folder;
  const auto result = own_store_job(*python, folder, {"--no_agent_store"}).wait(torch_timeout);
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::Contains("]:rank 1 has met the other\n"));
  CHECK_THAT(result.err, !Catch::Contains("nobody listens"));
}

// ---- torchrun's options

namespace {

struct TorchrunOption {
  std::string spelling;
  bool flag = false;
  std::string value;  // the option's default
};

std::vector<TorchrunOption> torchrun_options(const TorchPython& python) {
  constexpr const char* program =
      "from torch.distributed.run import get_args_parser\n"
      "for action in get_args_parser()._actions:\n"
      "  for name in action.option_strings:\n"
      "    print(name, int(action.nargs == 0), '' if action.default is None else action.default, sep='|')\n";
  const auto result = Child({python.path, "-c", program}).wait(torch_timeout);
  INFO(result.err);
  REQUIRE(result.code == 0);
  std::vector<TorchrunOption> options;
  for (const auto& line : lines_of(result.out)) {
    const auto first = line.find('|'), second = line.find('|', first + 1);
    options.push_back({line.substr(0, first), line.substr(first + 1, 1) == "1", line.substr(second + 1)});
  }
  return options;
}

}  // namespace

TEST_CASE("ddprun takes every option of the installed torchrun, or refuses it with a reason") {
  const auto python = find_current_torch();
  if (!python) SKIP(no_current_torch);
  const auto options = torchrun_options(*python);
  CHECK(options.size() > 40);
  const std::map<std::string, std::string> samples{{"--print-completion", "bash"}, {"--print_completion", "bash"}};
  for (const auto& option : options) {
    if (option.spelling.find("help") != std::string::npos || option.spelling == "-h") continue;
    CAPTURE(option.spelling, option.value);
    const auto sample = samples.find(option.spelling);
    Words words{DDPRUN_PROGRAM, "--dry_run", option.spelling};
    if (!option.flag) words.push_back(sample == samples.end() ? option.value : sample->second);
    words.insert(words.end(), {"--no_python", "/bin/true"});
    const auto result = run_child(words);
    CHECK_THAT(result.err, !Catch::Contains("unknown option"));
    CHECK_THAT(result.err, !Catch::Contains("ambiguous"));
    const auto name = option.spelling.substr(option.spelling.find_first_not_of('-'));
    auto underscored = name;
    std::replace(underscored.begin(), underscored.end(), '-', '_');
    const bool named = result.err.find(name) != std::string::npos || result.err.find(underscored) != std::string::npos;
    CHECK((result.code == 0 || (result.code == 2 && named)));
  }
}
