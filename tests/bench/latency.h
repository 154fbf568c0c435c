#pragma once

#include <chrono>
#include <vector>

namespace ddprun::bench {

// Collects durations and reports their quantiles.
class Latencies {
 public:
  void add(std::chrono::nanoseconds duration) { nanoseconds_.push_back(duration.count()); }
  void add(const Latencies& others);
  const std::vector<long long>& nanoseconds() const { return nanoseconds_; }
  std::size_t count() const { return nanoseconds_.size(); }
  // Returns the smallest value that at least this share (0 to 1) of the durations does not exceed, in microseconds; 0
  // without durations.
  double quantile_us(double share);

 private:
  std::vector<long long> nanoseconds_;
};

}  // namespace ddprun::bench
