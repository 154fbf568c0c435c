#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::trainer {

// The division of a step's samples among ranks of different speed, so that all compute for about as long. A rank's
// speed is its measured one, smoothed over measurements; a division is replaced when the slowest rank's time would fall
// by more than 5 %, which noise does not promise twice. The weights of samples do not change, so the mean of a step's
// gradients does not either.
//
// A value; the same measurements give the same decisions at all ranks.
class LoadBalancer {
 public:
  // Starts with an even division. REQUIRES: ranks >= 1, samples >= ranks
  LoadBalancer(int ranks, std::int64_t samples);

  struct Decision {
    std::vector<std::int64_t> shares;  // samples of a step, by rank: 1 or more
    std::string reason;                // with the measured times
  };
  // seconds: the average time of each rank in a step, with the present shares. Returns none if they stay.
  std::optional<Decision> observe(const std::vector<double>& seconds);

  const std::vector<std::int64_t>& shares() const { return shares_; }

 private:
  std::vector<std::int64_t> best_shares() const;
  double slowest(const std::vector<std::int64_t>& shares) const;

  const std::int64_t samples_;
  std::vector<std::int64_t> shares_;
  std::vector<double> speeds_;  // samples a second, by rank; empty if not measured yet
};

}  // namespace ddprun::trainer
