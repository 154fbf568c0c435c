#include "worker/trainer/session/load_balancer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ddprun::trainer {
namespace {

constexpr double least_gain = 0.05;
constexpr double weight_of_new = 0.5;

}  // namespace

LoadBalancer::LoadBalancer(int ranks, std::int64_t samples) : samples_(samples) {
  for (int r = 0; r < ranks; ++r) shares_.push_back(samples / ranks + (r < samples % ranks ? 1 : 0));
}

std::optional<LoadBalancer::Decision> LoadBalancer::observe(const std::vector<double>& seconds) {
  const bool first = speeds_.empty();
  speeds_.resize(shares_.size());
  for (std::size_t r = 0; r < shares_.size(); ++r) {
    const double speed = static_cast<double>(shares_[r]) / std::max(seconds[r], 1e-9);
    speeds_[r] = first ? speed : weight_of_new * speed + (1 - weight_of_new) * speeds_[r];
  }
  auto shares = best_shares();
  const double before = slowest(shares_), after = slowest(shares);
  if (after > (1 - least_gain) * before) return std::nullopt;
  shares_ = shares;
  return Decision{std::move(shares),
                  fmt::format("ranks compute {:.0f} samples/s: with shares of {} samples the slowest takes {:.1f} ms a "
                              "step in place of {:.1f} ms",
                              fmt::join(speeds_, ", "), fmt::join(shares_, ", "), after * 1e3, before * 1e3)};
}

// Divides in proportion to the speeds. The rest after rounding down goes to the largest remainders, lower ranks first.
std::vector<std::int64_t> LoadBalancer::best_shares() const {
  const double all = std::accumulate(speeds_.begin(), speeds_.end(), 0.0);
  const auto ranks = speeds_.size();
  const auto divisible = static_cast<double>(samples_ - static_cast<std::int64_t>(ranks));  // beyond one for each rank
  std::vector<std::int64_t> shares(ranks);
  std::vector<std::size_t> order(ranks);
  std::vector<double> remainders(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const double ideal = std::clamp(static_cast<double>(samples_) * speeds_[r] / all - 1, 0.0, divisible);
    shares[r] = 1 + static_cast<std::int64_t>(ideal);
    remainders[r] = ideal - std::floor(ideal);
    order[r] = r;
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  auto rest = samples_ - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  for (std::size_t i = 0; rest > 0; i = (i + 1) % ranks, --rest) ++shares[order[i]];
  // Some ranks got one sample although less was due to them: the largest shares pay for it.
  for (; rest < 0; ++rest) --*std::ranges::max_element(shares);
  return shares;
}

// Returns the seconds of the slowest rank.
double LoadBalancer::slowest(const std::vector<std::int64_t>& shares) const {
  double most = 0;
  for (std::size_t r = 0; r < shares.size(); ++r) most = std::max(most, static_cast<double>(shares[r]) / speeds_[r]);
  return most;
}

}  // namespace ddprun::trainer
