// Allreduce between hosts, which are network namespaces joined by a link of limited bandwidth. Measures back ends and
// the link's lower bound side by side, call by call in turn, and the bytes that each sends, which do not depend on
// load.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "common/error.h"
#include "common/standard_output.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/registry/backends.h"
#include "worker/comm/spawn.h"
#include "tests/bench/collectives/shared_mapping.h"
#include "tests/bench/collectives/sleeping_barrier.h"
#include "tests/bench/latency.h"
#include "tests/bench/link_floor.h"
#include "tests/bench/subcommand.h"
#include "tests/support/host_network.h"
#include "tests/support/netns.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;
using testing::InNetwork;

struct Options {
  int ranks_per_host = 2;
  std::string rate = "1gbit";
  std::vector<std::string> backends = {"hierarchical", "gloo"};
  std::vector<std::size_t> sizes = {64 << 10, 1 << 20, 16 << 20};
  int calls = 20;
  int in_flight = 1;

  int ranks() const { return 2 * ranks_per_host; }
};

struct Column {
  std::string name;
  std::function<void(std::vector<float>&)> run;
  Latencies times;
  std::uint64_t sent = 0;  // bytes sent by the first host
};

class RankOnHost {
 public:
  RankOnHost(const Options& options, const testing::NetnsHosts& hosts, SharedMapping& mapping, SleepingBarrier& barrier,
             const WorkerEnv& env)
      : options_(options),
        hosts_(hosts),
        mapping_(mapping),
        barrier_(barrier),
        env_(env),
        host_(env.rank / options.ranks_per_host),
        network_(hosts.network(host_)) {
    connect_floor();
    for (const auto& backend : options.backends) groups_.push_back(join(backend));
  }

  void measure(bool json) {
    if (env_.rank == 0 && !json) {
      fmt::print("{:<20} {:>5} {:>10} {:>9} {:>9} {:>9} {:>7} {:>10}\n", "backend", "ranks", "bytes", "min ms",
                 "p50 ms", "p99 ms", "x floor", "sent MB");
    }
    for (const auto bytes : options_.sizes) {
      auto columns = make_columns(bytes);
      std::vector<float> values(bytes / sizeof(float));
      constexpr int warm_up = 2;
      for (int call = -warm_up; call < options_.calls; ++call) {
        for (auto& column : columns) once(column, values, call >= 0);
      }
      if (env_.rank == 0) report(columns, bytes, json);
    }
    mapping_.barrier(env_.rank);
  }

 private:
  // Opens one connection between the first ranks of the hosts.
  void connect_floor() {
    const int first = options_.ranks_per_host;
    if (env_.rank == 0) floor_.emplace(LinkFloor::listen(hosts_.address(0)));
    const auto port = mapping_.broadcast(env_.rank, floor_ ? floor_->port() : 0);
    if (env_.rank == first) floor_.emplace(LinkFloor::dial(hosts_.address(0), static_cast<std::uint16_t>(port)));
    if (env_.rank == 0) floor_->accept();
  }

  std::unique_ptr<ProcessGroup> join(const std::string& backend) {
    GroupOptions options{.rank = env_.rank, .size = env_.world_size};
    options.connect_store = [this] {
      const InNetwork outside(network_.outside());  // the store is reached outside the limited link
      return std::make_shared<TcpStore>(TcpStoreOptions{.host = env_.master_addr, .port = env_.master_port},
                                        Deadline::in(std::chrono::seconds(30)));
    };
    options.prefix = "bench/" + backend + "/";
    options.config.timeout = std::chrono::minutes(1);
    options.config.local_address = hosts_.address(host_);
    options.config.host = "host " + std::to_string(host_);
    return comm::make_group(backend, options);
  }

  std::vector<Column> make_columns(std::size_t bytes) {
    std::vector<Column> columns;
    columns.push_back({"floor: both ways", [this, bytes](auto&) {
                         if (floor_) floor_->exchange(bytes);
                       }});
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      columns.push_back({options_.backends[i], [group = groups_[i].get()](std::vector<float>& values) {
                           group->allreduce(span_of(values), ReduceOp::sum)->wait();
                         }});
      if (options_.in_flight > 1) {
        columns.push_back({fmt::format("{} {} parts", options_.backends[i], options_.in_flight),
                           [this, group = groups_[i].get()](auto& values) { in_parts(*group, values); }});
      }
    }
    return columns;
  }

  void in_parts(ProcessGroup& group, std::vector<float>& values) const {
    const auto parts = static_cast<std::size_t>(options_.in_flight);
    std::vector<WorkPtr> works;
    for (std::size_t i = 0; i < parts; ++i) {
      const auto first = values.size() * i / parts, end = values.size() * (i + 1) / parts;
      works.push_back(group.allreduce({values.data() + first, end - first, DType::float32}, ReduceOp::sum));
    }
    for (const auto& work : works) work->wait();
  }

  // Measures until the last rank is done. The ranks sleep as they wait: the back ends' threads need the processors.
  void once(Column& column, std::vector<float>& values, bool counts) {
    std::fill(values.begin(), values.end(), static_cast<float>(env_.rank + 1));
    barrier_.wait();
    mapping_.barrier(env_.rank);
    const auto sent = testing::bytes_sent("eth0");
    const auto start = Clock::now();
    column.run(values);
    *time_of(env_.rank) = Clock::now() - start;
    barrier_.wait();
    Clock::duration longest{};
    for (int rank = 0; rank < env_.world_size; ++rank) longest = std::max(longest, *time_of(rank));
    if (counts) column.times.add(longest), column.sent += testing::bytes_sent("eth0") - sent;
    const auto expected = static_cast<float>(env_.world_size * (env_.world_size + 1) / 2);
    if (!column.name.starts_with("floor") && (values.front() != expected || values.back() != expected))
      throw make_error(Errc::internal, "{}: a wrong sum", column.name);
  }

  Clock::duration* time_of(int rank) const { return reinterpret_cast<Clock::duration*>(mapping_.message(rank)); }

  void report(std::vector<Column>& columns, std::size_t bytes, bool json) const {
    const double floor = columns[0].times.quantile_us(0.5);
    for (auto& column : columns) {
      const double ms[] = {column.times.quantile_us(0) / 1e3, column.times.quantile_us(0.5) / 1e3,
                           column.times.quantile_us(0.99) / 1e3};
      const double factor = ms[1] * 1e3 / floor;
      const double sent = static_cast<double>(column.sent) / options_.calls / 1e6;
      if (json) {
        fmt::print(R"({{"op":"allreduce","backend":"{}","ranks":{},"bytes":{},"min_ms":{:.3f},"p50_ms":{:.3f},)"
                   R"("p99_ms":{:.3f},"x_floor":{:.3f},"sent_mb":{:.4f}}})"
                   "\n",
                   column.name, env_.world_size, bytes, ms[0], ms[1], ms[2], factor, sent);
      } else {
        fmt::print("{:<20} {:>5} {:>10} {:>9.2f} {:>9.2f} {:>9.2f} {:>7.2f} {:>10.3f}\n", column.name, env_.world_size,
                   bytes, ms[0], ms[1], ms[2], factor, sent);
      }
    }
    flush_standard_output();
  }

  const Options& options_;
  const testing::NetnsHosts& hosts_;
  SharedMapping& mapping_;
  SleepingBarrier& barrier_;
  const WorkerEnv& env_;
  const int host_;
  const InNetwork network_;
  std::optional<LinkFloor> floor_;
  std::vector<std::unique_ptr<ProcessGroup>> groups_;
};

void run(const Options& options, bool json) {
  if (const auto why = testing::NetnsHosts::why_not(); !why.empty()) throw Error(Errc::unsupported, why);
  testing::NetnsHosts hosts(2);
  hosts.limit(0, options.rate);
  hosts.limit(1, options.rate);
  SharedMapping mapping(options.ranks(), 4096);
  SleepingBarrier barrier(options.ranks());
  spawn(options.ranks(),
        [&](const WorkerEnv& env) { RankOnHost(options, hosts, mapping, barrier, env).measure(json); });
}

}  // namespace

Run hosts_bench(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.add_option("--ranks-per-host", options->ranks_per_host, "ranks on each of the two hosts")
      ->capture_default_str();
  subcommand.add_option("--rate", options->rate, "bandwidth of the link between them, as tc writes it")
      ->capture_default_str();
  subcommand.add_option("--backend", options->backends, "back ends, measured in turn")
      ->delimiter(',')
      ->capture_default_str();
  subcommand.add_option("--bytes", options->sizes, "sizes of the buffer")->delimiter(',')->capture_default_str();
  subcommand.add_option("--calls", options->calls, "calls of each back end and size")->capture_default_str();
  subcommand
      .add_option("--in-flight", options->in_flight,
                  "also the buffer in that many parts, one operation each, all started before the first wait")
      ->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
