// Under mpirun: the cost of an allreduce over the back end mpi beyond the plain calls of MPI, in one run, alternating.
#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "common/environment.h"
#include "common/error.h"
#include "worker/comm/backends/mpi/mpi_library.h"
#include "worker/comm/init.h"
#include "tests/bench/subcommand.h"

namespace ddprun::bench {
namespace {

struct Settings {
  int rounds = 30;
  int calls = 200;
  std::size_t max_bytes = std::size_t{1} << 20;
};

template <class Call>
double microseconds_each(ProcessGroup& group, int calls, Call call) {
  group.barrier({.blocking = true});
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count() / calls;
}

struct Times {
  double least = std::numeric_limits<double>::max();
  void add(double time) { least = std::min(least, time); }
};

void measure(const Settings& settings, bool json) {
  const auto env = WorkerEnv::from(Environment::capture());
  if (env.world_size < 2) throw Error(Errc::usage, "it needs ranks: mpirun -n 2 ddprun-bench mpi");
  const auto world = init_process_group({.backend = "mpi", .env = env});
  auto& group = world->group();
  auto& library = comm::MpiLibrary::instance(CommConfig{}.timeout);
  const auto& mpi = library.calls();
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto plain = library.create_communicator(ranks, 1, [] {});
  const bool prints = group.rank() == 0;
  if (prints && !json)
    fmt::print("{}, {} ranks, least of {} rounds; us\n{:>9} {:>10} {:>14} {:>16} {:>20}\n", library.name(),
               group.size(), settings.rounds, "bytes", "ddprun", "MPI_Allreduce", "MPI_Iallreduce",
               "beyond Iallreduce");
  for (std::size_t bytes = 4; bytes <= settings.max_bytes; bytes *= 16) {
    const auto memory = group.allocate(bytes);
    const Span span{memory.data(), bytes / 4, DType::float32};
    auto* const data = memory.as<float>().data();
    const int count = static_cast<int>(span.count), calls = bytes > 65'536 ? settings.calls / 10 : settings.calls;
    Times ours, blocking, nonblocking;
    for (int round = 0; round < settings.rounds; ++round) {
      ours.add(microseconds_each(group, calls, [&] { group.allreduce(span, ReduceOp::sum, {.blocking = true}); }));
      blocking.add(microseconds_each(group, calls, [&] {
        library.check(mpi.call<&comm::MpiFunctions::plain_allreduce>(plain, data, count), "MPI");
      }));
      nonblocking.add(microseconds_each(group, calls, [&] {
        library.check(mpi.call<&comm::MpiFunctions::plain_iallreduce>(plain, data, count), "MPI");
      }));
    }
    if (!prints) continue;
    if (json) {
      fmt::print("{{\"bytes\": {}, \"ddprun_us\": {:.3f}, \"allreduce_us\": {:.3f}, \"iallreduce_us\": {:.3f}}}\n",
                 bytes, ours.least, blocking.least, nonblocking.least);
    } else {
      fmt::print("{:>9} {:>10.2f} {:>14.2f} {:>16.2f} {:>20.2f}\n", bytes, ours.least, blocking.least,
                 nonblocking.least, ours.least - nonblocking.least);
    }
  }
}

}  // namespace

Run mpi_bench(CLI::App& subcommand) {
  const auto settings = std::make_shared<Settings>();
  subcommand.add_option("--rounds", settings->rounds, "alternating rounds")->check(CLI::PositiveNumber);
  subcommand.add_option("--calls", settings->calls, "calls a round")->check(CLI::PositiveNumber);
  subcommand.add_option("--max-bytes", settings->max_bytes, "the largest size");
  return [settings](bool json) { measure(*settings, json); };
}

}  // namespace ddprun::bench
