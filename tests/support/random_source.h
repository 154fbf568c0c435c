#pragma once

#include <chrono>
#include <cstdint>

namespace ddprun::testing {

// Random numbers from one seed, the same on every machine (splitmix64).
class RandomSource {
 public:
  explicit RandomSource(std::uint64_t seed) : state_(seed) {}

  bool one_in(int n) { return below(static_cast<std::uint64_t>(n)) == 0; }
  bool percent(int share) { return between(1, 100) <= share; }
  int between(int low, int high) { return low + static_cast<int>(below(static_cast<std::uint64_t>(high - low) + 1)); }
  std::chrono::microseconds duration(std::chrono::microseconds low, std::chrono::microseconds high) {
    return low + std::chrono::microseconds(below(static_cast<std::uint64_t>((high - low).count()) + 1));
  }

 private:
  std::uint64_t below(std::uint64_t end) {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % end;
  }

  std::uint64_t state_;
};

}  // namespace ddprun::testing
