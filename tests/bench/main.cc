#include <csignal>
#include <exception>
#include <poll.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/standard_output.h"
#include "tests/bench/subcommand.h"
#include "tests/bench/sweeper.h"

namespace {

struct Row {
  const char* name;
  const char* help;
  ddprun::bench::MakeSubcommand make;
};
constexpr Row rows[] = {
    {"collectives", "process groups: latency and bandwidth of each operation", ddprun::bench::collectives_bench},
    {"failure", "a rank that dies or freezes, an abort: until the error, until a new group",
     ddprun::bench::failure_bench},
    {"hosts", "process groups across two hosts with a link of limited bandwidth between them",
     ddprun::bench::hosts_bench},
    {"launch", "starting workers: wall time and memory beside fork and exec, and peers", ddprun::bench::launch_bench},
    {"mpi", "under mpirun: an allreduce over the back end mpi beside the plain calls of MPI", ddprun::bench::mpi_bench},
    {"page", "the page of a job: bytes and processor time of its clients, from an update to the screen",
     ddprun::bench::page_bench},
    {"rendezvous", "many agents in one round, many store clients in one barrier, memory of each",
     ddprun::bench::rendezvous_bench},
    {"restart", "from a worker's or a node's failure until all workers run again", ddprun::bench::restart_bench},
    {"store", "the rendezvous store: latency and operations a second", ddprun::bench::store_bench},
    {"trust", "authentication: handshakes, requests over TLS, sessions", ddprun::bench::trust_bench},
#if defined(DDPRUN_BENCH_OF_TRAINING)
    {"flood", "junk, replays and wrong tokens beside a training job", ddprun::bench::flood_bench},
    {"hooks_link", "communication hooks over a slow link: a step beside its computation and its transfer",
     ddprun::bench::hooks_link_bench},
    {"parallel", "every form of parallel training: what it learns, its memory, traffic and time",
     ddprun::bench::parallel_bench},
    {"pipeline", "pipelines: how long ranks wait, beside the schedules' formulas", ddprun::bench::pipeline_bench},
    {"recovery", "a training whose ranks are killed: from the kill until the others have made the step, by phase",
     ddprun::bench::recovery_bench},
    {"train", "a whole training job: samples a second, and from the command to the first step",
     ddprun::bench::train_bench},
    {"train_step", "one training step beside the floor of its arithmetic: forward, backward, optimizer",
     ddprun::bench::train_step_bench},
    {"uneven_ranks", "what a slow rank costs: data parallelism, balanced shares, servers of parameters",
     ddprun::bench::uneven_ranks_bench},
#endif
};

// Returns whether the reader of the results has closed its pipe: `ddprun-bench ... | head -1`.
bool reader_has_left() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

int run(int argc, char** argv) {
  CLI::App app{"Measures the parts of ddprun on this machine.", "ddprun-bench"};
  app.require_subcommand(1);
  bool json = false;
  std::vector<std::pair<CLI::App*, ddprun::bench::Run>> runs;
  for (const auto& row : rows) {
    auto* subcommand = app.add_subcommand(row.name, row.help);
    subcommand->add_flag("--json", json, "one JSON object a line in place of a table");
    runs.emplace_back(subcommand, row.make(*subcommand));
  }
  if (argc == 1) {
    std::string names;
    for (const auto& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
    ddprun::log::error("expected what is to be measured: {}; see ddprun-bench --help", names);
    return ddprun::exit_usage;
  }
  try {
    app.parse(argc, argv);
    for (const auto& [subcommand, run] : runs)
      if (subcommand->parsed()) run(json);
    return ddprun::exit_success;
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    ddprun::log::error("{}", e.what());
    return ddprun::exit_usage;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ddprun::bench::Sweeper sweeper;
  ddprun::log::init("ddprun-bench");
  try {
    const int code = run(argc, argv);
    ddprun::flush_standard_output();
    return code;
  } catch (const ddprun::Error& e) {
    if (reader_has_left()) ::raise(SIGPIPE);  // it ended the rank that printed, and ends this process as quietly
    ddprun::log::error("{}", e.what());
    return ddprun::exit_for(e.code());
  } catch (const std::exception& e) {
    ddprun::log::error("{}", e.what());
    return ddprun::exit_fault;
  }
}
