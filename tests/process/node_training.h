#pragma once

#include <algorithm>
#include <csignal>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/process/recorded_training.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"

// A training on agents of this machine as nodes, which are lost, leave and come while it runs.
namespace ddprun::testing {

inline constexpr const char* able = "all workers can recover: true";

struct NodeOptions {
  std::optional<std::size_t> node_rank = std::nullopt;  // that its agent asks for; none: the number of agents before it
  bool may_serve = false;     // the rendezvous at its endpoint; the first agent does in any case
  Words enter = {};           // the prefix of its command line; none: it runs on this host
  std::string wait_for = {};  // with may_wait: a FIFO from which its worker reads a line before it starts; empty: none
};

// A job of agents on this machine, each with one worker. Each writes a ledger of its own, as one of a host does.
class NodeTraining {
 public:
  // last_call: seconds for which the first round waits for more nodes than the minimum.
  NodeTraining(std::string nnodes, std::string last_call, Words launch, Words overrides)
      : nnodes_(std::move(nnodes)),
        last_call_(std::move(last_call)),
        launch_(std::move(launch)),
        overrides_(std::move(overrides)) {}

  // Starts an agent. The first one serves the rendezvous.
  Child& start(const Words& more = {}, const NodeOptions& agent = {}) {
    const std::string is_host = agents_.empty() ? ",is_host=true" : agent.may_serve ? "" : ",is_host=false";
    Words launch{
        "--nnodes=" + nnodes_,           "--nproc_per_node=1",
        "--rdzv_backend=c10d",           "--node_rank=" + std::to_string(agent.node_rank.value_or(agents_.size())),
        "--rdzv_endpoint=" + endpoint(), "--rdzv_conf=last_call_timeout=" + last_call_ + is_host,
        "--shutdown_timeout=20"};
    launch.insert(launch.end(), launch_.begin(), launch_.end());
    launch.insert(launch.end(), more.begin(), more.end());
    Words overrides{"--data.ledger=" + ledger(agents_.size()),
                    "--metrics.file=" + (training.folder / "metrics.jsonl").string()};
    overrides.insert(overrides.end(), overrides_.begin(), overrides_.end());
    auto variables = training.marker.variables();
    variables["LOGLEVEL"] = "DEBUG";
    variables["WAIT_FOR"] = agent.wait_for;
    auto words = training.job(launch, overrides);
    const std::string hide = hides_records ? "unset DDPRUN_TRAINING_RECORD; " : "";
    const Words waiting{"/bin/sh", "-c",
                        hide + "test -z \"$WAIT_FOR\" || read line < \"$WAIT_FOR\"; exec \"$0\" \"$@\"", DDPRUN_WORKER};
    if (may_wait)
      words.insert(words.begin() + 1 + static_cast<std::ptrdiff_t>(launch.size()), waiting.begin(), waiting.end());
    words.insert(words.begin(), agent.enter.begin(), agent.enter.end());
    agents_.push_back(std::make_unique<Child>(words, variables));
    return *agents_.back();
  }
  Child& first() { return *agents_.front(); }
  // Ends the process of an agent and its worker.
  static void kill(Child& agent) {
    agent.signal(SIGKILL);
    agent.wait(bound);
  }

  // The process of each agent's worker.
  std::map<const Child*, pid_t> workers() const {
    std::map<const Child*, pid_t> pids;
    for (const pid_t pid : workers_of(training.marker)) {
      const auto parent = parent_of(pid);
      for (const auto& agent : agents_)
        if (agent->pid() == parent) pids[agent.get()] = pid;
    }
    return pids;
  }
  // Those of these agents.
  std::map<const Child*, pid_t> workers(const std::vector<const Child*>& agents) const {
    auto all = workers();
    std::erase_if(all, [&](const auto& each) { return std::ranges::find(agents, each.first) == agents.end(); });
    return all;
  }
  void wait_for_step(std::int64_t step) { ddprun::testing::wait_for_step(first(), training, step); }
  // Waits for so many more steps. agent: one that lives.
  void wait_for_steps(std::int64_t count, Child* agent = nullptr) {
    ddprun::testing::wait_for_step(agent ? *agent : first(), training, recorded_steps(training).back() + count);
  }

  // Returns what `ledger verify` says of the files of all agents.
  std::string verified() const {
    Words words{DDPRUN_WORKER, "ledger", "verify"};
    for (std::size_t i = 0; i < agents_.size(); ++i)
      if (std::filesystem::exists(ledger(i))) words.push_back(ledger(i));
    const auto result = Child(words).wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    return result.out;
  }

  // That of the rendezvous server: host and port.
  std::string endpoint() const { return host + ":" + port_; }

  static pid_t parent_of(pid_t pid) {
    const auto status = proc_text(std::to_string(pid), "status");
    const auto at = status.find("PPid:");
    return at == std::string::npos ? 0 : std::atoi(status.c_str() + at + 5);
  }

  std::string ledger(std::size_t agent) const {
    return (training.folder / ("ledger." + std::to_string(agent))).string();
  }

  Training training;
  bool may_wait = false;           // the same for all agents
  bool hides_records = false;      // with may_wait: agents read no training records, as of workers in containers
  std::string host = "127.0.0.1";  // of the endpoint; the first agent runs there

 private:
  const std::string nnodes_, last_call_;
  const Words launch_, overrides_;
  const std::string port_ = std::to_string(free_port());
  std::list<std::unique_ptr<Child>> agents_;
};

// The job makes the same steps with any number of ranks.
inline const Words same_steps{"--train.batch_size=0", "--train.global_batch_size=40", "--data.samples=16000"};
inline constexpr std::int64_t all_steps = 800;

inline std::string output_of(Child& agent, int code = 0) {
  const auto result = agent.wait(bound);
  INFO(result.out + result.err);
  CHECK(result.code == code);
  return result.out + result.err;
}

}  // namespace ddprun::testing
