#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/parallel/spawn.h"
#include "tests/bench/latency.h"
#include "tests/bench/subcommand.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int ranks = 2;
  std::string op = "allreduce";
  std::string backend = "gloo";
  std::string dtype = "float32";
  std::size_t max_bytes = 16 << 20;
  double seconds = 0.5;  // a size, at most
};

constexpr DType all_types[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                               DType::int8,    DType::uint8,   DType::int32,   DType::int64};

DType dtype_named(const std::string& name) {
  for (const auto dtype : all_types)
    if (name_of(dtype) == name) return dtype;
  throw make_error(Errc::usage, "there is no element type named {}", name);
}

// An operation on buffers of this many bytes in all (what a rank ends up with, or began with), and nccl-tests' factor
// from the time of an algorithm to the traffic of its links.
struct Collective {
  const char* name;
  bool in_parts;  // the buffer is made of equal parts, one a rank
  double (*bus_factor)(double ranks);
  WorkPtr (*start)(ProcessGroup& group, Span whole, Span part);
};
constexpr Collective collectives[] = {
    {"allreduce", false, [](double n) { return 2 * (n - 1) / n; },
     [](ProcessGroup& group, Span whole, Span) { return group.allreduce(whole, ReduceOp::sum); }},
    {"broadcast", false, [](double) { return 1.0; },
     [](ProcessGroup& group, Span whole, Span) { return group.broadcast(whole, 0); }},
    {"allgather", true, [](double n) { return (n - 1) / n; },
     [](ProcessGroup& group, Span whole, Span part) { return group.allgather(part, whole); }},
    {"reduce_scatter", true, [](double n) { return (n - 1) / n; },
     [](ProcessGroup& group, Span whole, Span part) { return group.reduce_scatter(whole, part, ReduceOp::sum); }},
    {"barrier", false, [](double) { return 0.0; }, [](ProcessGroup& group, Span, Span) { return group.barrier(); }},
};

const Collective& collective_named(const std::string& name) {
  for (const auto& each : collectives)
    if (name == each.name) return each;
  throw make_error(Errc::usage, "there is no collective named {} to measure", name);
}

struct Row {
  std::size_t bytes = 0;
  Latencies times;
  Latencies floor;  // of copying the buffer once
};

class Measurement {
 public:
  Measurement(const Options& options, ProcessGroup& group)
      : options_(options),
        group_(group),
        collective_(collective_named(options.op)),
        dtype_(dtype_named(options.dtype)) {}

  Row measure(std::size_t bytes) {
    const auto size = static_cast<std::size_t>(group_.size());
    const auto unit = (collective_.in_parts ? size : 1) * size_of(dtype_);
    bytes = std::max(bytes / unit, std::size_t{1}) * unit;
    std::vector<std::byte> memory(bytes), part(bytes), source(bytes, std::byte{1});
    const Span whole{memory.data(), bytes / size_of(dtype_), dtype_};
    const Span share{part.data(), whole.count / size, dtype_};
    Row row{bytes, {}, {}};
    constexpr int warm_up = 5;
    for (int i = 0; i < warm_up; ++i) once(whole, share, source, nullptr);
    const int count = agreed_count(row, whole, share, source);
    for (int i = 0; i < count; ++i) once(whole, share, source, &row);
    return row;
  }

 private:
  void once(Span whole, Span share, const std::vector<std::byte>& source, Row* row) {
    const auto before = Clock::now();
    std::memcpy(whole.data, source.data(), source.size());
    std::memcpy(share.data, source.data(), share.bytes());
    const auto copied = Clock::now();
    group_.barrier()->wait();
    const auto start = Clock::now();
    collective_.start(group_, whole, share)->wait();
    if (!row) return;
    row->times.add(Clock::now() - start);
    row->floor.add(copied - before);
  }

  // Rank 0 tries a few and says how many fit the time.
  int agreed_count(const Row&, Span whole, Span share, const std::vector<std::byte>& source) {
    constexpr int tries = 3;
    const auto start = Clock::now();
    for (int i = 0; i < tries; ++i) once(whole, share, source, nullptr);
    const std::chrono::duration<double> each = (Clock::now() - start) / tries;
    std::vector<std::int64_t> count = {static_cast<std::int64_t>(options_.seconds / std::max(each.count(), 1e-6))};
    count[0] = std::clamp<std::int64_t>(count[0], 10, 2000);
    group_.broadcast(span_of(count), 0)->wait();
    return static_cast<int>(count[0]);
  }

  const Options& options_;
  ProcessGroup& group_;
  const Collective& collective_;
  const DType dtype_;
};

void report(const Options& options, Row row, bool json) {
  const double p50 = row.times.quantile_us(0.5);
  const double bandwidth = static_cast<double>(row.bytes) / p50 / 1e3;  // GB/s
  const double bus = bandwidth * collective_named(options.op).bus_factor(options.ranks);
  const char* format = json ? "{\"op\":\"%s\",\"backend\":\"%s\",\"ranks\":%d,\"dtype\":\"%s\",\"bytes\":%zu,"
                              "\"registered\":false,\"min_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"floor_us\":%.1f,"
                              "\"algbw_gbs\":%.3f,\"busbw_gbs\":%.3f}\n"
                            : "%-14s %-7s %5d %-8s %10zu %9.1f %9.1f %9.1f %9.1f %9.3f %9.3f\n";
  std::printf(format, options.op.c_str(), options.backend.c_str(), options.ranks, options.dtype.c_str(), row.bytes,
              row.times.quantile_us(0), p50, row.times.quantile_us(0.99), row.floor.quantile_us(0.5), bandwidth, bus);
  std::fflush(stdout);
}

void run(const Options& options, bool json) {
  collective_named(options.op);
  dtype_named(options.dtype);
  spawn(options.ranks, [&](const WorkerEnv& env) {
    const auto world = init_process_group({.backend = options.backend, .timeout = std::chrono::minutes(1), .env = env});
    Measurement measurement(options, world->group());
    if (env.rank == 0 && !json) {
      std::printf("%-14s %-7s %5s %-8s %10s %9s %9s %9s %9s %9s %9s\n", "op", "backend", "ranks", "dtype", "bytes",
                  "min us", "p50 us", "p99 us", "floor us", "alg GB/s", "bus GB/s");
    }
    for (std::size_t bytes = 4; bytes <= options.max_bytes; bytes *= 4) {
      auto row = measurement.measure(bytes);
      if (env.rank == 0) report(options, std::move(row), json);
    }
  });
}

}  // namespace

Run collectives_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.add_option("--ranks", options->ranks, "processes to start")->capture_default_str();
  subcommand.add_option("--op", options->op, "allreduce, broadcast, allgather, reduce_scatter, barrier")
      ->capture_default_str();
  subcommand.add_option("--backend", options->backend, "a back end of the process group")->capture_default_str();
  subcommand.add_option("--dtype", options->dtype, "element type")->capture_default_str();
  subcommand.add_option("--max-bytes", options->max_bytes, "the largest buffer")->capture_default_str();
  subcommand.add_option("--seconds", options->seconds, "at most, a size")->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
