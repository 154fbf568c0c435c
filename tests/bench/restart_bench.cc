// The time from a failure to the moment at which every worker of the next attempt runs. The workers end at the first
// SIGTERM and report when they run; the same number of them, stopped and started by this program itself, is the floor.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "common/deadline.h"
#include "common/error.h"
#include "common/standard_output.h"
#include "common/unique_fd.h"
#include "tests/bench/launchers.h"
#include "tests/bench/process.h"
#include "tests/bench/restart_record.h"
#include "tests/bench/subcommand.h"
#include "tests/support/free_port.h"
#include "tests/support/netns.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int> workers{2, 8};
  int rounds = 11;
  int budget_s = 50;  // time for the whole run; launchers that take seconds get as many runs as fit
  std::string torch_python;
};

constexpr std::chrono::seconds time_limit{30};  // limit for one run

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// The records of the workers of one run.
class Records {
 public:
  Records() {
    if (::mkfifo(path().c_str(), 0600) != 0)
      throw make_error(Errc::io, "cannot make the FIFO {}: {}", path(), errno_text(errno));
    fd_ = UniqueFd(::open(path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!fd_) throw make_error(Errc::io, "cannot open {}: {}", path(), errno_text(errno));
  }

  Words worker() const { return {beside("ddprun-bench-worker"), path()}; }

  // Waits until that many workers of one attempt run, of a later attempt than `after`.
  std::vector<RestartRecord> wait_for(int workers, int after, const std::string& launcher) {
    const auto deadline = Deadline::in(time_limit);
    for (;;) {
      const int newest = newest_attempt();
      std::vector<RestartRecord> running;
      for (const auto& record : seen_)
        if (record.attempt == newest) running.push_back(record);
      if (newest > after && std::ssize(running) == workers) return running;
      pollfd entry{fd_.get(), POLLIN, 0};
      if (::poll(&entry, 1, deadline.poll_timeout_ms()) == 0 && deadline.expired())
        throw make_error(Errc::timeout, "{}: {} of {} workers of attempt {} ran within {} s", launcher, running.size(),
                         workers, newest, time_limit.count());
      RestartRecord record;
      while (::read(fd_.get(), &record, sizeof record) == sizeof record) seen_.push_back(record);
    }
  }

 private:
  std::string path() const { return (folder_ / "records").string(); }
  int newest_attempt() const {
    int newest = -1;
    for (const auto& record : seen_) newest = std::max(newest, record.attempt);
    return newest;
  }

  testing::TempDir folder_;
  UniqueFd fd_;
  std::vector<RestartRecord> seen_;
};

double ms_until_last(const std::vector<RestartRecord>& running, std::int64_t since_ns) {
  std::int64_t last = 0;
  for (const auto& record : running) last = std::max(last, record.time_ns);
  return static_cast<double>(last - since_ns) / 1e6;
}

pid_t pid_of(const std::vector<RestartRecord>& running, int rank) {
  for (const auto& record : running)
    if (record.rank == rank) return record.pid;
  throw make_error(Errc::internal, "no worker of rank {}", rank);
}

// The time to stop and start only the workers: all but the failed one are ended and waited for, then all are started.
double floor_once(int workers) {
  Records records;
  const auto start_all = [&] {
    std::vector<Process> started;
    for (int i = 0; i < workers; ++i) started.emplace_back(records.worker());
    return started;
  };
  auto first = start_all();
  records.wait_for(workers, -1, "the floor");
  const auto since = now_ns();
  for (auto& process : first) ::kill(process.pid(), SIGTERM);
  first.clear();
  std::vector<RestartRecord> running;
  Records again;
  std::vector<Process> second;
  for (int i = 0; i < workers; ++i) second.emplace_back(again.worker());
  return ms_until_last(again.wait_for(workers, -1, "the floor"), since);
}

// Measures with a worker of rank 1 that is killed.
double worker_failure_once(const Launcher& launcher, int workers) {
  Records records;
  const Process process(launcher.line(workers, records.worker(), {"--max_restarts=1"}), {.own_group = true});
  const auto before = records.wait_for(workers, -1, launcher.name);
  const auto since = now_ns();
  ::kill(pid_of(before, 1), SIGKILL);
  return ms_until_last(records.wait_for(workers, before.front().attempt, launcher.name), since);
}

// Three agents of two workers each; the last one is lost, and the other four workers start again.
constexpr int nodes = 3, workers_a_node = 2, survivors = (nodes - 1) * workers_a_node;

// enter precedes the command line of a node, if it is not empty.
std::vector<Process> start_nodes(const Records& records, const std::string& endpoint, const std::string& conf,
                                 const std::function<Words(int node)>& enter) {
  std::vector<Process> agents;
  for (int node = 0; node < nodes; ++node) {
    Words words = enter(node);
    for (const auto& word :
         {beside("ddprun"), std::string("--no_python"), std::string("--nnodes=2:3"), "--rdzv_endpoint=" + endpoint,
          fmt::format("--rdzv_conf=is_host={}{}", node == 0, conf), fmt::format("--nproc_per_node={}", workers_a_node)})
      words.push_back(word);
    for (const auto& word : records.worker()) words.push_back(word);
    agents.emplace_back(words, ProcessOptions{.own_group = true});
  }
  return agents;
}

double node_loss_once() {
  Records records;
  const auto agents =
      start_nodes(records, fmt::format("127.0.0.1:{}", testing::free_port()), "", [](int) { return Words(); });
  const auto before = records.wait_for(nodes * workers_a_node, -1, "ddprun");
  const auto since = now_ns();
  ::kill(agents.back().pid(), SIGKILL);
  return ms_until_last(records.wait_for(survivors, before.front().attempt, "ddprun"), since);
}

// A node is lost at the latest after this many missed heartbeats, one second apart.
constexpr int missed_heartbeats = 2;
constexpr double keep_alive_bound_ms = 1000.0 * missed_heartbeats;

double link_loss_once() {
  if (const auto why = testing::NetnsHosts::why_not(); !why.empty()) throw Error(Errc::unsupported, why);
  testing::NetnsHosts hosts(nodes);
  Records records;
  const auto agents = start_nodes(records, hosts.address(0) + ":29400",
                                  fmt::format(",keep_alive_interval=1,keep_alive_max_attempt={}", missed_heartbeats),
                                  [&](int node) { return hosts.enter(node); });
  const auto before = records.wait_for(nodes * workers_a_node, -1, "ddprun");
  const auto since = now_ns();
  hosts.link_down(nodes - 1);
  return ms_until_last(records.wait_for(survivors, before.front().attempt, "ddprun"), since);
}

struct Row {
  std::string event, launcher;
  int workers = 0;
  bool slow = false;
  double bound_ms = 0;  // the limit within which the loss has to be noticed; 0: at once
  std::function<double()> once;
  std::vector<double> times_ms{};
  std::string failure{};
};

std::vector<Row> make_rows(const Options& options, int workers) {
  std::vector<Row> rows{
      {.event = "floor", .launcher = "none", .workers = workers, .once = [workers] { return floor_once(workers); }}};
  std::vector<Launcher> launchers{ddprun_launcher()};
  for (auto& launcher : torchruns(options.torch_python)) launchers.push_back(std::move(launcher));
  for (const auto& launcher : launchers)
    rows.push_back(
        {.event = "worker", .launcher = launcher.name, .workers = workers, .slow = launcher.slow, .once = [=] {
           return worker_failure_once(launcher, workers);
         }});
  return rows;
}

void measure(std::vector<Row>& rows, const Options& options, Clock::time_point end) {
  for (int round = 0; round < options.rounds; ++round)
    for (auto& row : rows) {
      if (!row.failure.empty() || (row.slow && round > 0 && Clock::now() > end)) continue;
      try {
        row.times_ms.push_back(row.once());
      } catch (const Error& e) {
        row.failure = e.what();
      }
    }
}

void print(bool json, const Row& row, const Row& floor) {
  if (!row.failure.empty())
    return static_cast<void>(
        std::fprintf(stderr, "%s, %s is left out: %s\n", row.event.c_str(), row.launcher.c_str(), row.failure.c_str()));
  const double wall = median(row.times_ms), above = wall - median(floor.times_ms);
  if (json)
    fmt::print(
        "{{\"event\": \"{}\", \"launcher\": \"{}\", \"workers\": {}, \"runs\": {}, \"recovery_ms\": {:.3f}, "
        "\"recovery_ms_max\": {:.3f}, \"above_floor_ms\": {:.3f}, \"bound_ms\": {:.0f}}}\n",
        row.event, row.launcher, row.workers, row.times_ms.size(), wall,
        *std::max_element(row.times_ms.begin(), row.times_ms.end()), above, row.bound_ms);
  else
    fmt::print("{:<8} {:<22} {:>7} {:>5} {:>12.2f} {:>10.2f} {:>15.2f} {:>9}\n", row.event, row.launcher, row.workers,
               row.times_ms.size(), wall, *std::max_element(row.times_ms.begin(), row.times_ms.end()), above,
               row.bound_ms > 0 ? fmt::format("{:.0f}", row.bound_ms) : "");
}

void run(const Options& options, bool json) {
  if (!json)
    fmt::print("{:<8} {:<22} {:>7} {:>5} {:>12} {:>10} {:>15} {:>9}\n", "event", "launcher", "workers", "runs",
               "recovery_ms", "max_ms", "above_floor_ms", "bound_ms");
  const auto began = Clock::now();
  std::vector<std::vector<Row>> tables;
  for (const int workers : options.workers) tables.push_back(make_rows(options, workers));
  tables.push_back(
      {{.event = "floor", .launcher = "none", .workers = survivors, .once = [] { return floor_once(survivors); }},
       {.event = "node", .launcher = "ddprun", .workers = survivors, .once = node_loss_once},
       {.event = "link",
        .launcher = "ddprun",
        .workers = survivors,
        .slow = true,
        .bound_ms = keep_alive_bound_ms,
        .once = link_loss_once}});
  const auto share = std::chrono::seconds(options.budget_s) / static_cast<double>(tables.size());
  for (std::size_t i = 0; i < tables.size(); ++i) {
    measure(tables[i], options,
            began + std::chrono::duration_cast<Clock::duration>(share * static_cast<double>(i + 1)));
    for (const auto& row : tables[i]) print(json, row, tables[i].front());
    flush_standard_output();
  }
}

}  // namespace

Run restart_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.footer(
      "worker: a worker is killed; node: the agent of one of three nodes is (its two workers with it); link: that "
      "node's\n"
      "network is cut without a word, and its heartbeats, one a second, have to be missed until it counts as lost, at\n"
      "the latest after bound_ms (nodes in network namespaces, needs root). recovery_ms: from then until the last "
      "worker\n"
      "of the next attempt runs, median and largest of the runs. floor: the same number of workers told to end, "
      "waited\n"
      "for and started again by this program; above_floor_ms is what the launcher adds. torchrun is measured where "
      "there\n"
      "is a python with torch: with its defaults, and with a monitor interval of 10 ms.");
  subcommand.add_option("--workers", options->workers, "workers of the node whose worker fails, each a table")
      ->delimiter(',')
      ->capture_default_str();
  subcommand.add_option("--rounds", options->rounds, "of each row, those apart that take seconds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--budget", options->budget_s, "seconds for all of it, about")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  subcommand.add_option("--torch-python", options->torch_python,
                        "the interpreter whose torchrun is measured (default: DDPRUN_TORCH_PYTHON, else python3)");
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
