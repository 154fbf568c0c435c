#pragma once

#include <array>
#include <cstdint>

#include "worker/tensor/tensor.h"

namespace ddprun {

// Random numbers as a pure function of (seed, stream, position): Philox4x32-10 (philox.h). They are the same on every
// machine, compiler and device. A value: copy it to replay; its state is three integers.
class Generator {
 public:
  struct State {
    std::uint64_t seed = 0;
    std::uint64_t stream = 0;
    std::uint64_t position = 0;  // 32-bit numbers drawn so far
    friend bool operator==(const State&, const State&) = default;
  };

  explicit Generator(std::uint64_t seed, std::uint64_t stream = 0) : state_{seed, stream, 0} {}
  explicit Generator(State state) : state_(state) {}

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  double uniform();  // [0, 1), 53 bits
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  float uniform_float();  // [0, 1), 24 bits, one 32-bit number
  double normal();        // mean 0, variance 1; two draws of uniform() each
  // Returns a number in [0, bound), without bias. REQUIRES: bound > 0
  std::uint64_t below(std::uint64_t bound);

  const State& state() const { return state_; }

 private:
  State state_;
  std::array<std::uint32_t, 4> block_{};  // the four numbers around state_.position
  std::uint64_t block_index_ = ~std::uint64_t{0};
};

void fill_uniform(Tensor& tensor, double low, double high, Generator& generator);
void fill_normal(Tensor& tensor, double mean, double deviation, Generator& generator);

}  // namespace ddprun
