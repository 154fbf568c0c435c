// Time from the death or freeze of a rank, or an abort, to the error at all other ranks, and from there to the first
// operation of a group of the survivors. Ranks are processes; all use the machine's monotonic clock.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "common/error.h"
#include "common/standard_output.h"
#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/elastic_group.h"
#include "tests/bench/helpers.h"
#include "tests/bench/subcommand.h"

namespace ddprun::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> backends{"gloo", "shm"};
  std::vector<int> ranks{2, 4, 5, 8};
  int kills = 10;
  int aborts = 5;
  int freezes = 1;
  int freeze_bound_ms = 500;
  int memory_mib = 0;
  int busy = 0;
};

enum class Fault { kill, freeze, abort };

constexpr const char* name_of(Fault fault) {
  return fault == Fault::kill ? "kill" : fault == Fault::freeze ? "freeze" : "abort";
}

// One group: its store, and the fault that is injected.
struct Round {
  std::string backend;
  int ranks = 2;
  Fault fault = Fault::kill;
  std::uint16_t port = 0;
  std::string prefix;
  std::chrono::milliseconds freeze_bound{};
  int memory_mib = 0;
  int busy = 0;
};

// The times are in milliseconds; for each round that of the slowest rank.
struct Times {
  std::vector<double> error;     // from the fault to the error at all others; after an abort, at the aborting rank
  std::vector<double> others;    // after an abort, at the other ranks
  std::vector<double> recovery;  // from the error to the first operation of the survivors' group
};

std::int64_t now_ns() {
  return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}
std::int64_t hear_time(Helper& helper) {
  return std::stoll(helper.line().hear());
}
void say_time(Line& line) {
  line.say(std::to_string(now_ns()));
}

std::vector<std::string> members(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

// The memory that a rank uses and its threads that compute: its end takes longer with them.
class RankLoad {
 public:
  explicit RankLoad(const Round& round) : memory_(static_cast<std::size_t>(round.memory_mib) << 20, std::byte{1}) {
    for (int i = 0; i < round.busy; ++i)
      threads_.emplace_back([](const std::stop_token& stop) {
        while (!stop.stop_requested()) continue;
      });
  }

 private:
  std::vector<std::byte> memory_;
  std::vector<std::jthread> threads_;
};

// Reports when it is ready, when it gets an error, and when the next group works.
void run_rank(const Round& round, int rank, Line& line) {
  GroupOptions options{.connect_store =
                           [&] {
                             return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = round.port},
                                                               Deadline::in(std::chrono::seconds(10)));
                           },
                       .prefix = round.prefix,
                       .config = {.freeze_bound = round.freeze_bound}};
  ElasticGroup elastic(round.backend, options, std::to_string(rank));
  auto& group = elastic.reconfigure(0, members(round.ranks));
  std::vector<float> values(20'000, 1.0f);
  const RankLoad load(round);
  group.barrier()->wait();
  line.say("ready");
  std::thread aborter;
  const bool aborts = round.fault == Fault::abort && rank == 0;
  if (aborts) {
    aborter = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // while operations are in progress
      say_time(line);
      elastic.abort("measured");
    });
  }
  try {
    while (true) group.allreduce(span_of(values), ReduceOp::average)->wait();
  } catch (const Error&) {
    if (aborts) aborter.join();
    say_time(line);
  }
  if (round.fault != Fault::kill) return;
  elastic.abort("a peer was lost");
  elastic.reconfigure(1, members(round.ranks - 1)).barrier()->wait();
  say_time(line);
  line.hear();  // it leaves once all ranks have reported
}

double milliseconds_between(std::int64_t from, std::int64_t to) {
  return static_cast<double>(to - from) / 1e6;
}

void run_round(const Round& round, Times& times) {
  std::vector<Helper> helpers;
  for (int rank = 0; rank < round.ranks; ++rank)
    helpers.emplace_back([&round, rank](Line& line) { run_rank(round, rank, line); });
  for (auto& helper : helpers) helper.line().hear();
  std::int64_t begin = 0;
  if (round.fault == Fault::abort) {
    begin = hear_time(helpers.front());
    times.error.push_back(milliseconds_between(begin, hear_time(helpers.front())));
  } else {
    ::usleep(10'000);  // while operations are in progress
    begin = now_ns();
    ::kill(helpers.back().pid(), round.fault == Fault::kill ? SIGKILL : SIGSTOP);
  }
  std::int64_t error = begin;
  const auto first = helpers.begin() + (round.fault == Fault::abort ? 1 : 0);
  const auto last = helpers.end() - (round.fault == Fault::abort ? 0 : 1);
  for (auto each = first; each != last; ++each) error = std::max(error, hear_time(*each));
  (round.fault == Fault::abort ? times.others : times.error).push_back(milliseconds_between(begin, error));
  if (round.fault != Fault::kill) return;
  std::int64_t recovered = error;
  for (auto each = first; each != last; ++each) recovered = std::max(recovered, hear_time(*each));
  times.recovery.push_back(milliseconds_between(error, recovered));
  for (auto each = first; each != last; ++each) each->line().say("leave");
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

void print(bool json, const Round& round, const char* what, const std::vector<double>& values) {
  if (values.empty()) return;
  const auto p50 = percentile(values, 0.5), p99 = percentile(values, 0.99), max = percentile(values, 1);
  if (json)
    fmt::print(
        "{{\"backend\": \"{}\", \"ranks\": {}, \"what\": \"{}\", \"rounds\": {}, \"p50_ms\": {:.2f}, "
        "\"p99_ms\": {:.2f}, \"max_ms\": {:.2f}}}\n",
        round.backend, round.ranks, what, values.size(), p50, p99, max);
  else
    fmt::print("{:<13} {:>5}  {:<26} {:>6}  {:>9.2f} {:>9.2f} {:>9.2f}\n", round.backend, round.ranks, what,
               values.size(), p50, p99, max);
  flush_standard_output();
}

void run(const Options& options, bool json) {
  Helper server([](Line& line) {
    const StoreServerThread store({.host = "127.0.0.1"});
    line.say(std::to_string(store.port()));
    line.hear();
  });
  const auto port = static_cast<std::uint16_t>(std::stoi(server.line().hear()));
  if (!json)
    fmt::print("{:<13} {:>5}  {:<26} {:>6}  {:>9} {:>9} {:>9}\n", "backend", "ranks", "ms from .. to", "rounds", "p50",
               "p99", "max");
  int number = 0;
  for (const auto& backend : options.backends) {
    for (const int ranks : options.ranks) {
      for (const auto fault : {Fault::kill, Fault::abort, Fault::freeze}) {
        const int rounds = fault == Fault::kill    ? options.kills
                           : fault == Fault::abort ? options.aborts
                                                   : options.freezes;
        Round round{.backend = backend, .ranks = ranks, .fault = fault, .port = port};
        round.freeze_bound = std::chrono::milliseconds(options.freeze_bound_ms);
        round.memory_mib = options.memory_mib;
        round.busy = options.busy;
        Times times;
        for (int i = 0; i < rounds; ++i) {
          round.prefix = fmt::format("round/{}/", number++);
          run_round(round, times);
        }
        print(json, round,
              fmt::format("{} .. {}", name_of(fault), fault == Fault::abort ? "own calls" : "error").c_str(),
              times.error);
        print(json, round, "abort .. the others' error", times.others);
        print(json, round, "error .. next group works", times.recovery);
      }
    }
  }
}

}  // namespace

Run failure_bench(CLI::App& subcommand) {
  auto options = std::make_shared<Options>();
  subcommand.add_option("--backend", options->backends, "back ends of the groups")->capture_default_str();
  subcommand.add_option("--ranks", options->ranks, "sizes of the groups before the fault")->capture_default_str();
  subcommand.add_option("--kills", options->kills, "kills measured for each group")->capture_default_str();
  subcommand.add_option("--aborts", options->aborts, "aborts measured for each group")->capture_default_str();
  subcommand.add_option("--freezes", options->freezes, "freezes measured for each group")->capture_default_str();
  subcommand.add_option("--freeze-bound-ms", options->freeze_bound_ms, "freeze bound of the groups")
      ->capture_default_str();
  subcommand.add_option("--memory-mib", options->memory_mib, "memory that each rank uses")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  subcommand.add_option("--busy", options->busy, "threads of each rank that compute")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  return [options](bool json) { run(*options, json); };
}

}  // namespace ddprun::bench
