#include <csignal>
#include <sched.h>
#include <sys/prctl.h>
#include <vector>

#include "tests/process/nodes.h"
#include "tests/support/catch.h"

// With the default heartbeat interval and bound, no node counts as lost on a machine whose cores are all four times
// oversubscribed. `ctest -C nightly -L nightly` runs the long form.
using namespace ddprun::testing;

namespace {

// Processes that each use a core all the time.
class BusyProcesses {
 public:
  explicit BusyProcesses(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) static_cast<void>(std::chrono::steady_clock::now());
      }
      if (pid > 0) pids_.push_back(pid);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;
  ~BusyProcesses() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  }
  std::size_t size() const { return pids_.size(); }

 private:
  std::vector<pid_t> pids_;
};

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

void no_node_is_lost_for(std::chrono::seconds time) {
  Nodes job{.options = {"--nnodes=3:4"}};
  auto first = job.host();
  auto second = job.guest(), third = job.guest(), fourth = job.guest();
  const std::vector<Node*> nodes{&first, &second, &third, &fourth};
  for (auto* node : nodes) node->wait_for_round(4);
  const int generation = first.generation();

  const BusyProcesses busy(std::max(8, 4 * usable_cores()));
  REQUIRE(busy.size() >= 8);
  const auto end = std::chrono::steady_clock::now() + time;
  for (auto* node : nodes)
    node->wait_until([&] { return node->generation() != generation || std::chrono::steady_clock::now() >= end; },
                     "end of the time", time + std::chrono::seconds(60));

  job.finish();
  for (auto* node : nodes) {
    const auto result = node->wait();
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(node->generation() == generation);
    CHECK(result.err.find("lost") == std::string::npos);
  }
}

}  // namespace

TEST_CASE("no node counts as lost while every core is four times oversubscribed") {
  no_node_is_lost_for(std::chrono::seconds(15));
}

TEST_CASE("no node counts as lost in ten minutes of four times oversubscription", "[.nightly]") {
  no_node_is_lost_for(std::chrono::minutes(10));
}
