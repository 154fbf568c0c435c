#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ddprun::bench {

// The bytes that a rank moves between memory and its core in a step beside the operands of its products: gradients as
// the backward pass writes them, their reduction, the optimizer's update.
struct StateTraffic {
  std::size_t updated = 0;  // bytes read and written in place
  std::size_t read = 0;
  std::size_t written = 0;

  std::size_t total() const { return 2 * updated + read + written; }
};

// optimizer is adam, or sgd without momentum. zero is 1 if each rank updates 1/ranks of the parameters and gives the
// others the result, otherwise 0.
StateTraffic state_traffic(std::size_t parameters, std::string_view optimizer, int ranks, int zero);

// Moves that many bytes with almost no arithmetic: the step's update and reduction cannot be faster, as long as they do
// not fit the caches.
class MemoryFloor {
 public:
  explicit MemoryFloor(const StateTraffic& traffic);

  void run();

 private:
  std::vector<float> updated_, read_, written_;
};

}  // namespace ddprun::bench
