#include "worker/parallel/forms/pipeline/stage_balancer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "tests/support/catch.h"

using namespace ddprun;
using pipeline::StageBalancer;

namespace {

using Cuts = std::vector<std::size_t>;

// Ranks of different speed that compute layers, which the balancer does not know.
struct Machine {
  std::vector<double> layers;  // seconds at a rank of speed 1
  std::vector<double> speeds;

  std::vector<double> seconds(const Cuts& cuts) const {
    std::vector<double> all;
    for (std::size_t s = 0; s <= cuts.size(); ++s) {
      const std::size_t begin = s == 0 ? 0 : cuts[s - 1], end = s < cuts.size() ? cuts[s] : layers.size();
      double sum = 0;
      for (std::size_t layer = begin; layer < end; ++layer) sum += layers[layer];
      all.push_back(sum / speeds[s]);
    }
    return all;
  }
  std::vector<double> measured(const Cuts& cuts, double noise, std::mt19937& random) const {
    auto all = seconds(cuts);
    for (double& each : all) each *= std::uniform_real_distribution(1 - noise, 1 + noise)(random);
    return all;
  }
  double slowest(const Cuts& cuts) const { return std::ranges::max(seconds(cuts)); }
};

int observe(StageBalancer& balancer, const Machine& machine, int measurements, double noise, std::mt19937& random) {
  int moves = 0;
  for (int i = 0; i < measurements; ++i)
    moves += balancer.observe(machine.measured(balancer.cuts(), noise, random)) ? 1 : 0;
  return moves;
}

// Returns whether no move of one layer makes the slowest stage faster by more than the noise hides.
bool is_settled(const Machine& machine, const Cuts& cuts, double tolerance) {
  const double now = machine.slowest(cuts);
  for (std::size_t cut = 0; cut < cuts.size(); ++cut)
    for (const bool forward : {true, false}) {
      auto moved = cuts;
      forward ? --moved[cut] : ++moved[cut];
      const std::size_t begin = cut == 0 ? 0 : moved[cut - 1];
      const std::size_t end = cut + 1 < moved.size() ? moved[cut + 1] : machine.layers.size();
      if (begin >= moved[cut] || moved[cut] >= end) continue;
      if (machine.slowest(moved) < (1 - tolerance) * now) return false;
    }
  return true;
}

Machine random_machine(std::mt19937& random, int stages) {
  const auto layers = static_cast<std::size_t>(std::uniform_int_distribution(2 * stages, 6 * stages)(random));
  Machine machine;
  for (std::size_t layer = 0; layer < layers; ++layer)
    machine.layers.push_back(std::uniform_real_distribution(0.5, 2.0)(random));
  for (int s = 0; s < stages; ++s) machine.speeds.push_back(std::uniform_real_distribution(0.3, 1.0)(random));
  return machine;
}

Cuts even_cuts(std::size_t layers, std::size_t stages) {
  Cuts cuts;
  for (std::size_t s = 1; s < stages; ++s) cuts.push_back(s * layers / stages);
  return cuts;
}

}  // namespace

TEST_CASE("a slow stage gives a layer to its neighbour once two measurements agree") {
  StageBalancer balancer({1, 1, 1, 1, 1, 1}, {3});
  CHECK_FALSE(balancer.observe({0.030, 0.060}));
  const auto decision = balancer.observe({0.030, 0.060});
  REQUIRE(decision);
  CHECK(decision->cuts == Cuts{4});
  CHECK(decision->layer == 3);
  CHECK(decision->from == 1);
  CHECK(decision->to == 0);
  CHECK(decision->reason == "stages compute 30.0, 60.0 ms a step: the slowest would take 40.0 ms in place of 60.0 ms");
  CHECK(balancer.cuts() == Cuts{4});
  for (int i = 0; i < 10; ++i) CHECK_FALSE(balancer.observe({0.040, 0.040}));
}

TEST_CASE("the first stage gives its last layer, and stages of the middle either end") {
  const auto move = [](const Cuts& cuts, const std::vector<double>& seconds) {
    StageBalancer balancer({1, 1, 1, 1, 1, 1, 1, 1, 1}, cuts);
    balancer.observe(seconds);
    return balancer.observe(seconds)->cuts;
  };
  CHECK(move({3, 6}, {0.06, 0.03, 0.04}) == Cuts{2, 6});
  CHECK(move({3, 6}, {0.03, 0.06, 0.04}) == Cuts{4, 6});
  CHECK(move({3, 6}, {0.04, 0.06, 0.03}) == Cuts{3, 5});
  CHECK(move({3, 6}, {0.04, 0.03, 0.06}) == Cuts{3, 7});
}

TEST_CASE("a stage keeps a layer, and differences within 5 per cent stay") {
  StageBalancer last({1, 1, 1}, {2});
  for (int i = 0; i < 10; ++i) CHECK_FALSE(last.observe({0.01, 1}));
  StageBalancer close({1, 1, 1, 1}, {2});
  for (int i = 0; i < 10; ++i) CHECK_FALSE(close.observe({0.100, 0.104}));
  StageBalancer whole({1, 1}, {});
  CHECK_FALSE(whole.observe({1}));
}

TEST_CASE("measurements that do not agree move nothing") {
  StageBalancer balancer({1, 1, 1, 1}, {2});
  for (int i = 0; i < 20; ++i) CHECK_FALSE(balancer.observe({0.1, i % 2 == 0 ? 0.2 : 0.05}));
}

TEST_CASE("what a layer costs is learnt by moving it") {
  std::mt19937 random(1);
  // Layers are assumed to cost one each: stage times are 5 and 3, and 2.5 and 5.5 after a move, which is undone once.
  const Machine longer{.layers = {1, 1.5, 2.5, 1, 1, 1}, .speeds = {1, 1}};
  StageBalancer balancer(std::vector<double>(6, 1.0), {3});
  CHECK(observe(balancer, longer, 100, 0, random) == 2);
  CHECK(balancer.cuts() == Cuts{3});
  // Stage times are 5 and 3, and 4 each after a move.
  const Machine shorter{.layers = {2, 2, 1, 1, 1, 1}, .speeds = {1, 1}};
  StageBalancer other(std::vector<double>(6, 1.0), {3});
  CHECK(observe(other, shorter, 100, 0, random) == 1);
}

TEST_CASE("layers move until no move helps, and then nothing moves any more") {
  std::mt19937 random(5);
  int settled = 0, late_moves = 0;
  constexpr int runs = 300;
  for (int i = 0; i < runs; ++i) {
    const int stages = std::uniform_int_distribution(2, 6)(random);
    const Machine machine = random_machine(random, stages);
    auto said = machine.layers;  // forward passes show roughly what layers cost
    for (double& cost : said) cost *= std::uniform_real_distribution(0.8, 1.2)(random);
    StageBalancer balancer(said, even_cuts(said.size(), static_cast<std::size_t>(stages)));
    const double before = machine.slowest(balancer.cuts());
    observe(balancer, machine, 200, 0.03, random);
    CHECK(machine.slowest(balancer.cuts()) <= before * 1.1);
    settled += is_settled(machine, balancer.cuts(), 0.15) ? 1 : 0;
    late_moves += observe(balancer, machine, 200, 0.03, random);
  }
  CHECK(settled >= runs * 95 / 100);
  CHECK(late_moves <= runs / 10);
}

TEST_CASE("noise of a third of a stage's time makes moves rare, not an oscillation") {
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    const int stages = std::uniform_int_distribution(2, 6)(random);
    const Machine machine = random_machine(random, stages);
    StageBalancer balancer(machine.layers, even_cuts(machine.layers.size(), static_cast<std::size_t>(stages)));
    observe(balancer, machine, 1000, 0.33, random);
    CHECK(observe(balancer, machine, 1000, 0.33, random) <= 2 * stages);
  }
}

TEST_CASE("a rank that becomes slow, and quick again, has the layers that suit it each time") {
  std::mt19937 random(9);
  Machine machine{.layers = std::vector<double>(12, 1.0), .speeds = {1, 1}};
  StageBalancer balancer(machine.layers, {6});
  const auto settle = [&](const std::vector<double>& speeds) {
    machine.speeds = speeds;
    observe(balancer, machine, 100, 0.01, random);
    return balancer.cuts()[0];
  };
  CHECK(settle({1, 1}) == 6);
  CHECK(settle({1, 0.5}) == 8);
  CHECK(settle({1, 1}) == 6);
}

TEST_CASE("whatever was measured, stages keep their layers and moves die away") {
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    const auto stages = static_cast<std::size_t>(std::uniform_int_distribution(2, 5)(random));
    StageBalancer balancer(std::vector<double>(3 * stages, 1.0), even_cuts(3 * stages, stages));
    int moves = 0;
    for (int step = 0; step < 500; ++step) {
      std::vector<double> seconds;
      for (std::size_t s = 0; s < stages; ++s)
        seconds.push_back(std::pow(10, std::uniform_real_distribution(-12.0, 4.0)(random)));
      if (balancer.observe(seconds)) ++moves;
      const auto& cuts = balancer.cuts();
      REQUIRE(std::ranges::adjacent_find(cuts, std::greater_equal<>()) == cuts.end());
      REQUIRE(cuts.front() >= 1);
      REQUIRE(cuts.back() < 3 * stages);
    }
    CHECK(moves <= 40);
  }
}
