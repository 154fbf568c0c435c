#include "worker/parallel/forms/parameter_server/staleness_gate.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <random>

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

using Kind = StalenessGate::Admission::Kind;

std::vector<StalenessGate::Admission> all_of(StalenessGate& gate) {
  std::vector<StalenessGate::Admission> all;
  while (const auto admission = gate.admit()) all.push_back(*admission);
  return all;
}

StalenessGate::Admission read(int worker) {
  return {Kind::read, worker, 0};
}
StalenessGate::Admission apply(int worker, std::int64_t staleness) {
  return {Kind::apply, worker, staleness};
}

using Admissions = std::vector<StalenessGate::Admission>;

// Workers that read from all servers in turn, compute for a time of their own and bring their gradients to all, in
// virtual time; a message takes no time.
class Simulation {
 public:
  Simulation(std::vector<double> times, int servers, std::int64_t bound)
      : times_(std::move(times)),
        reads_(times_.size()),
        gates_(static_cast<std::size_t>(servers), {workers(), bound}) {}

  // Returns the time at which that many updates are applied at each server; nullopt if all workers wait before that.
  std::optional<double> run(std::int64_t updates, std::mt19937* jitter = nullptr) {
    for (int w = 0; w < workers(); ++w) gates_[0].ask_to_read(w);
    drain(0);
    while (std::ranges::any_of(gates_, [&](const auto& gate) { return gate.version() < updates; })) {
      if (computing_.empty()) return std::nullopt;
      const auto [time, worker] = computing_.top();
      computing_.pop();
      now_ = time;
      reads_[static_cast<std::size_t>(worker)] = 0;
      std::vector<std::size_t> order(gates_.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      if (jitter) std::ranges::shuffle(order, *jitter);  // the order in which the gradients arrive
      for (const std::size_t s : order) gates_[s].ask_to_apply(worker);
      applied_[worker] = gates_.size();
      for (const std::size_t s : order) drain(s);
    }
    return now_;
  }

  const StalenessGate& gate(std::size_t server) const { return gates_[server]; }

 private:
  int workers() const { return static_cast<int>(times_.size()); }

  void drain(std::size_t server) {
    while (const auto admission = gates_[server].admit()) {
      const int w = admission->worker;
      if (admission->kind == Kind::apply) {
        if (--applied_[w] == 0) {  // a worker waits for all its gradients here; the real one need not
          gates_[0].ask_to_read(w);
          drain(0);
        }
      } else if (++reads_[static_cast<std::size_t>(w)] == gates_.size()) {
        computing_.emplace(now_ + times_[static_cast<std::size_t>(w)], w);
      } else {
        gates_[server + 1].ask_to_read(w);
        drain(server + 1);
      }
    }
  }

  std::vector<double> times_;
  std::vector<std::size_t> reads_;  // number of servers that a worker has read from, by worker
  std::map<int, std::size_t> applied_;
  std::vector<StalenessGate> gates_;
  double now_ = 0;
  using Done = std::pair<double, int>;
  std::priority_queue<Done, std::vector<Done>, std::greater<>> computing_;
};

}  // namespace

TEST_CASE("a gradient waits until it makes no other one too old") {
  StalenessGate gate(3, 2);
  for (const int worker : {0, 1, 2}) gate.ask_to_read(worker);
  CHECK(all_of(gate) == Admissions{read(0), read(1), read(2)});
  gate.ask_to_apply(2);  // it would come after those of 0 and 1: applied now, theirs are 1 and 2 updates old
  CHECK(all_of(gate) == Admissions{apply(2, 0)});
  gate.ask_to_read(2);
  CHECK(all_of(gate) == Admissions{read(2)});
  gate.ask_to_apply(2);
  CHECK(all_of(gate).empty());  // 1's gradient would be 3 updates old once 0's is applied as well
  gate.ask_to_apply(1);
  CHECK(all_of(gate) == Admissions{apply(1, 1)});
  gate.ask_to_apply(0);
  CHECK(all_of(gate) == Admissions{apply(0, 2), apply(2, 2)});
  CHECK(gate.version() == 4);
  CHECK(gate.histogram() == std::vector<std::int64_t>{1, 1, 2});
}

TEST_CASE("a bound of zero is one worker at a time") {
  StalenessGate gate(2, 0);
  gate.ask_to_read(1);
  gate.ask_to_read(0);
  CHECK(all_of(gate) == Admissions{read(1)});
  gate.ask_to_apply(1);
  CHECK(all_of(gate) == Admissions{apply(1, 0), read(0)});
}

TEST_CASE("no gradient is older than the bound, and no worker waits for ever, whatever the workers' times") {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const int workers = std::uniform_int_distribution(1, 7)(random),
              servers = std::uniform_int_distribution(1, 4)(random);
    const auto bound = std::uniform_int_distribution<std::int64_t>(0, 9)(random);
    std::vector<double> times;
    for (int w = 0; w < workers; ++w) times.push_back(std::uniform_real_distribution(0.5, 8.0)(random));
    Simulation simulation(times, servers, bound);
    INFO(workers << " workers, " << servers << " servers, bound " << bound);
    REQUIRE(simulation.run(100, &random));
    for (int s = 0; s < servers; ++s) {
      const auto& counts = simulation.gate(static_cast<std::size_t>(s)).histogram();
      REQUIRE(std::ssize(counts) == bound + 1);  // admit() would have written beyond it
      REQUIRE(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) ==
              simulation.gate(static_cast<std::size_t>(s)).version());
    }
  }
}

TEST_CASE("a worker four times slower costs less than 30 per cent, unless the bound is too small for it") {
  const auto time = [](std::vector<double> times, std::int64_t bound) {
    return Simulation(std::move(times), 1, bound).run(400).value();
  };
  const double equal = time({1, 1, 1, 1}, 16);
  CHECK(time({1, 1, 1, 4}, 16) < 1.3 * equal);  // at best 4 / 3.25
  CHECK(time({1, 1, 1, 4}, 3) > 1.3 * equal);
}
