// Collectives of process groups, beside lower bounds (floors) of the hardware and optionally plain Gloo, in one run.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "common/error.h"
#include "common/standard_output.h"
#include "worker/comm/init.h"
#include "worker/comm/spawn.h"
#include "tests/bench/collectives/comparison.h"
#include "tests/bench/collectives/group_subject.h"
#include "tests/bench/collectives/plain_gloo.h"
#include "tests/bench/collectives/sleeping_barrier.h"
#include "tests/bench/subcommand.h"

namespace ddprun::bench {
namespace {

struct Options {
  int ranks = 2;
  std::string op = "allreduce";
  std::string backend = "shm";
  std::string dtype = "float32";
  std::size_t min_bytes = 4;
  std::size_t max_bytes = 64 << 20;
  double seconds = 0.05;
  bool async_only = false;
  bool registered_only = false;
  int in_flight = 1;
  std::vector<std::string> gloo;

  // The floors implement only this operation.
  bool has_floors() const { return op == "allreduce" && dtype == "float32"; }
};

Subjects make_subjects(const Options& options, SharedMapping& mapping, const WorkerEnv& env, ProcessGroup& group) {
  Subjects subjects;
  if (options.has_floors()) {
    subjects.push_back(shared_result_floor(mapping, env.rank));
    subjects.push_back(in_place_floor(mapping, env.rank));
    subjects.push_back(staged_floor(mapping, env.rank));
  }
  subjects.push_back(copy_floor());
  for (const bool registered : {false, true}) {
    if (!registered && options.registered_only) continue;
    for (const bool blocking : {true, false}) {
      if (blocking && options.async_only) continue;
      subjects.push_back(
          group_subject(group, operation_named(options.op),
                        {.dtype = dtype_named(options.dtype), .registered = registered, .blocking = blocking}));
    }
  }
  if (options.in_flight > 1) {
    subjects.push_back(
        group_subject(group, operation_named(options.op),
                      {.dtype = dtype_named(options.dtype), .blocking = false, .in_flight = options.in_flight}));
  }
  for (const auto& algorithm : options.gloo) subjects.push_back(plain_gloo(algorithm, mapping, env.rank));
  return subjects;
}

// Returns the floor that a subject is compared with: one for the same kind of memory, otherwise a copy of the buffer.
const char* floor_of(const Subject& subject, const Options& options) {
  if (!options.has_floors()) return "floor: memory copy";
  return subject.registered() ? "floor: in place" : "floor: staged";
}

void print_head(bool json) {
  if (json) return;
  std::printf("%-14s %-22s %5s %-8s %10s %9s %9s %9s %9s %7s %9s %9s %8s\n", "op", "backend", "ranks", "dtype", "bytes",
              "min us", "p50 us", "p99 us", "floor us", "x floor", "alg GB/s", "bus GB/s", "core ns");
}

void print_row(const Options& options, const Subject& subject, Latencies& times, double floor_us, std::size_t bytes,
               double core_ns, bool json) {
  const double p50 = times.quantile_us(0.5), bandwidth = static_cast<double>(bytes) / p50 / 1e3;
  const double bus = bandwidth * operation_named(options.op).bus_factor(options.ranks);
  if (json) {
    fmt::print(
        R"({{"op":"{}","backend":"{}","ranks":{},"dtype":"{}","bytes":{},"registered":{},"min_us":{:.3f},"p50_us":{:.3f},)"
        R"("p99_us":{:.3f},"floor_us":{:.3f},"algbw_gbs":{:.3f},"busbw_gbs":{:.3f},"core_ns":{:.0f}}})"
        "\n",
        options.op, subject.name(), options.ranks, options.dtype, bytes, subject.registered(), times.quantile_us(0),
        p50, times.quantile_us(0.99), floor_us, bandwidth, bus, core_ns);
  } else {
    fmt::print(
        "{:<14} {:<22} {:>5} {:<8} {:>10} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>7.2f} {:>9.3f} {:>9.3f} {:>8.0f}\n",
        options.op, subject.name(), options.ranks, options.dtype, bytes, times.quantile_us(0), p50,
        times.quantile_us(0.99), floor_us, p50 / floor_us, bandwidth, bus, core_ns);
  }
}

void report(const Options& options, const Subjects& subjects, std::vector<Latencies>& times, std::size_t bytes,
            double core_ns, bool json) {
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    double floor_us = 0;
    for (std::size_t j = 0; j < subjects.size(); ++j)
      if (subjects[j]->name() == floor_of(*subjects[i], options)) floor_us = times[j].quantile_us(0.5);
    print_row(options, *subjects[i], times[i], floor_us, bytes, core_ns, json);
  }
  flush_standard_output();
}

void measure(const Options& options, SharedMapping& mapping, SleepingBarrier& barrier, const WorkerEnv& env,
             bool json) {
  const auto world =
      init_process_group({.backend = options.backend, .config = {.timeout = std::chrono::minutes(1)}, .env = env});
  const auto& operation = operation_named(options.op);
  Comparison comparison(mapping, barrier, operation,
                        {.rank = env.rank, .dtype = dtype_named(options.dtype), .seconds = options.seconds});
  const auto subjects = make_subjects(options, mapping, env, world->group());
  if (env.rank == 0) print_head(json);
  for (std::size_t size = options.min_bytes; size <= options.max_bytes; size *= 4) {
    const auto bytes = comparison.rounded(size);
    const double before = mapping.latency_ns(env.rank);
    auto times = comparison.measure(subjects, bytes);
    const double after = mapping.latency_ns(env.rank);
    if (env.rank == 0) report(options, subjects, times, bytes, (before + after) / 2, json);
  }
}

void run(const Options& options, bool json) {
  operation_named(options.op);
  dtype_named(options.dtype);
  if (options.ranks < 1) throw make_error(Errc::usage, "--ranks {}: give 1 or more", options.ranks);
  if (options.in_flight > 1 && !operation_named(options.op).in_place)
    throw make_error(Errc::usage, "--in-flight needs an operation that works in place; {} does not", options.op);
  SharedMapping mapping(options.ranks, options.has_floors() ? options.max_bytes + 4096 : 4096);
  SleepingBarrier barrier(options.ranks);
  spawn(options.ranks, [&](const WorkerEnv& env) { measure(options, mapping, barrier, env, json); });
}

}  // namespace

Run collectives_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.add_option("--ranks", options->ranks, "processes to start")->capture_default_str();
  subcommand.add_option("--op", options->op, operation_names())->capture_default_str();
  subcommand.add_option("--backend", options->backend, "a back end of the process group")->capture_default_str();
  subcommand.add_option("--dtype", options->dtype, "element type")->capture_default_str();
  subcommand
      .add_option("--min-bytes", options->min_bytes, "the smallest buffer; each following one is four times as large")
      ->capture_default_str();
  subcommand.add_option("--max-bytes", options->max_bytes, "the largest buffer")->capture_default_str();
  subcommand.add_option("--seconds", options->seconds, "at most, for one row; but a few calls at least")
      ->capture_default_str();
  subcommand.add_flag("--registered", options->registered_only, "only memory that is allocated from the group");
  subcommand.add_flag("--async", options->async_only, "only calls that return a work handle, not blocking ones");
  subcommand
      .add_option("--in-flight", options->in_flight,
                  "also the buffer in that many parts, one operation each, all started before the first wait")
      ->capture_default_str();
  subcommand
      .add_option("--gloo", options->gloo,
                  "also plain Gloo with these algorithms: ring, bcube, halving_doubling (allreduce of float32)")
      ->delimiter(',');
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
