#include <algorithm>
#include <csignal>
#include <map>
#include <sched.h>
#include <sys/prctl.h>
#include <utility>
#include <vector>

#include "tests/process/nodes.h"
#include "tests/support/catch.h"

// With the default heartbeat interval and bound, no node counts as lost on a machine whose cores are all four times
// oversubscribed. `ctest -C nightly -L nightly` runs the long form.
//
// Other processes add to the load. What the kernel says of an agent's waits for a processor tells a node that was
// starved from one that was lost without cause.
using namespace ddprun;
using namespace ddprun::testing;

namespace {

using Nanoseconds = std::chrono::nanoseconds;

// A node is lost after five heartbeats, one a second, that did not come.
constexpr std::chrono::seconds period(5);
// An agent that waited less than this for a processor, in all, sent one of them in time.
constexpr Nanoseconds starvation = std::chrono::seconds(4);

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

// Returns how long the threads of a process have waited for a processor, together.
Nanoseconds waited_for_processor(pid_t pid) {
  Nanoseconds sum{};
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream file(thread.path() / "schedstat");
    Nanoseconds::rep running = 0, waiting = 0;
    if (file >> running >> waiting) sum += Nanoseconds(waiting);
  }
  return sum;
}

// How long the agents of a job wait for processors, from its construction on.
class Starvation {
 public:
  explicit Starvation(const std::vector<Node*>& nodes) {
    for (const auto* node : nodes) before_[node->pid()] = waited_for_processor(node->pid());
  }
  // Returns the longest time that one of them has waited, in all.
  Nanoseconds longest() const {
    Nanoseconds most{};
    for (const auto& [pid, before] : before_) most = std::max(most, waited_for_processor(pid) - before);
    return most;
  }

 private:
  std::map<pid_t, Nanoseconds> before_;
};

void no_node_is_lost_for(std::chrono::seconds time) {
  Nodes job{.options = {"--nnodes=3:4"}};
  auto first = job.host();
  auto second = job.guest(), third = job.guest(), fourth = job.guest();
  const std::vector<Node*> nodes{&first, &second, &third, &fourth};
  for (auto* node : nodes) node->wait_for_round(4);
  const int generation = first.generation();
  const auto in_a_later_round = [&](const Node* node) { return node->generation() != generation; };

  const BusyProcesses busy(std::max(8, 4 * usable_cores()));
  REQUIRE(busy.size() >= 8);
  Starvation last_period(nodes), this_period = last_period;
  for (const auto end = Deadline::in(time); !in_a_later_round(&first) && !end.expired();) {
    last_period = std::exchange(this_period, Starvation(nodes));
    const auto period_end = earlier(end, Deadline::in(period));
    first.wait_until([&] { return in_a_later_round(&first) || period_end.expired(); }, "end of the time", 2 * period);
  }
  if (in_a_later_round(&first))
    for (auto* node : nodes) node->wait_for_round(4, generation + 1);  // by now each has had a processor again
  const auto waited = last_period.longest();

  job.finish();
  std::vector<Child::Result> results;
  for (auto* node : nodes) results.push_back(node->wait());
  if (std::ranges::any_of(nodes, in_a_later_round) && waited >= starvation)
    SKIP("other processes left an agent without a processor for seconds");
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    INFO(results[i].err);
    CHECK(results[i].code == 0);
    CHECK(nodes[i]->generation() == generation);
    CHECK(results[i].err.find("lost") == std::string::npos);
  }
}

}  // namespace

TEST_CASE("no node counts as lost while every core is four times oversubscribed") {
  no_node_is_lost_for(std::chrono::seconds(15));
}

TEST_CASE("no node counts as lost in ten minutes of four times oversubscription", "[.nightly]") {
  no_node_is_lost_for(std::chrono::minutes(10));
}
