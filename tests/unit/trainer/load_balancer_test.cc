#include "worker/trainer/session/load_balancer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/support/catch.h"

using namespace ddprun;
using trainer::LoadBalancer;

namespace {

using Shares = std::vector<std::int64_t>;

// Returns the times of ranks of these speeds, with some noise.
std::vector<double> seconds(const Shares& shares, const std::vector<double>& speeds, double noise,
                            std::mt19937& random) {
  std::vector<double> all;
  for (std::size_t r = 0; r < shares.size(); ++r)
    all.push_back(static_cast<double>(shares[r]) / speeds[r] *
                  std::uniform_real_distribution(1 - noise, 1 + noise)(random));
  return all;
}

double slowest(const Shares& shares, const std::vector<double>& speeds) {
  double most = 0;
  for (std::size_t r = 0; r < shares.size(); ++r) most = std::max(most, static_cast<double>(shares[r]) / speeds[r]);
  return most;
}

}  // namespace

TEST_CASE("a rank of half the speed gets half as many samples") {
  LoadBalancer balancer(2, 96);
  CHECK(balancer.shares() == Shares{48, 48});
  const auto decision = balancer.observe({0.048, 0.096});
  REQUIRE(decision);
  CHECK(decision->shares == Shares{64, 32});
  CHECK(balancer.shares() == decision->shares);
  CHECK(decision->reason ==
        "ranks compute 1000, 500 samples/s: with shares of 64, 32 samples the slowest takes 64.0 ms a step in place of "
        "96.0 ms");
  CHECK_FALSE(balancer.observe({0.064, 0.064}));
}

TEST_CASE("samples that do not divide evenly are divided, and differences within 5 per cent stay") {
  LoadBalancer balancer(3, 100);
  CHECK(balancer.shares() == Shares{34, 33, 33});
  CHECK_FALSE(balancer.observe({0.034, 0.033, 0.0335}));
  CHECK_FALSE(LoadBalancer(1, 8).observe({1}));
}

TEST_CASE("shares add up and no rank is without a sample, whatever was measured") {
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    const int ranks = std::uniform_int_distribution(1, 9)(random);
    const auto samples = std::uniform_int_distribution<std::int64_t>(ranks, 200)(random);
    LoadBalancer balancer(ranks, samples);
    for (int step = 0; step < 3; ++step) {
      std::vector<double> measured;
      for (int r = 0; r < ranks; ++r)
        measured.push_back(std::pow(10, std::uniform_real_distribution(-12.0, 4.0)(random)));
      balancer.observe(measured);
      REQUIRE(std::accumulate(balancer.shares().begin(), balancer.shares().end(), std::int64_t{0}) == samples);
      REQUIRE(std::ranges::min(balancer.shares()) >= 1);
    }
  }
}

TEST_CASE("a few measurements bring the step close to the ideal time, and then nothing changes any more") {
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    const int ranks = std::uniform_int_distribution(2, 8)(random);
    const std::int64_t samples = 64 * ranks;
    std::vector<double> speeds;
    for (int r = 0; r < ranks; ++r) speeds.push_back(std::uniform_real_distribution(200.0, 1000.0)(random));
    const double ideal = static_cast<double>(samples) / std::accumulate(speeds.begin(), speeds.end(), 0.0);
    LoadBalancer balancer(ranks, samples);
    for (int step = 0; step < 8; ++step) balancer.observe(seconds(balancer.shares(), speeds, 0.02, random));
    CHECK(slowest(balancer.shares(), speeds) < 1.1 * ideal);
    int changes = 0;
    for (int step = 0; step < 100; ++step)
      changes += balancer.observe(seconds(balancer.shares(), speeds, 0.02, random)) ? 1 : 0;
    CHECK(changes <= 2);
  }
}

TEST_CASE("a rank that becomes slow, and quick again, gets what suits it each time") {
  std::mt19937 random(9);
  LoadBalancer balancer(2, 128);
  const auto settle = [&](const std::vector<double>& speeds) {
    for (int step = 0; step < 10; ++step) balancer.observe(seconds(balancer.shares(), speeds, 0.01, random));
    return balancer.shares()[1];
  };
  CHECK(settle({1000, 1000}) == 64);
  CHECK(settle({1000, 500}) < 47);
  CHECK(settle({1000, 1000}) > 58);
}
