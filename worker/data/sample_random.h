#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace ddprun::data {

// Random numbers that belong to one sample: a pure function of the words it is made from (seed, split, index, ...), so
// that samples can be made in any order and on any thread. SplitMix64 (Steele, Lea, Flood 2014).
class SampleRandom {
 public:
  SampleRandom(std::initializer_list<std::uint64_t> words) {
    for (const auto word : words) state_ = mix(state_ ^ word) + increment;
  }

  std::uint64_t next() { return mix(state_ += increment); }
  // Returns a number in [0, 1) with 24 bits.
  float uniform() { return static_cast<float>(next() >> 40) * 0x1.0p-24F; }
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  int below(int bound) { return static_cast<int>(next() % static_cast<std::uint64_t>(bound)); }
  // Returns a normal number, mean 0, standard deviation 1 (Box and Muller, one of the pair).
  float normal() {
    const float radius = std::sqrt(-2.0F * std::log(1.0F - uniform()));
    return radius * std::cos(2.0F * std::numbers::pi_v<float> * uniform());
  }

 private:
  static constexpr std::uint64_t increment = 0x9e3779b97f4a7c15ULL;
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  std::uint64_t state_ = increment;
};

}  // namespace ddprun::data
