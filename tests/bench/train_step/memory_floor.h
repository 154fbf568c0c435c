#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ddprun::bench {

// What a rank moves between memory and its core in a step beside the operands of its products, in bytes: gradients as
// the backward pass writes them, their reduction, the optimizer's update.
struct StateTraffic {
  std::size_t updated = 0;  // read and written in place
  std::size_t read = 0;
  std::size_t written = 0;

  std::size_t total() const { return 2 * updated + read + written; }
};

// optimizer: adam, or sgd without momentum. zero: 1 if each rank updates 1/ranks of the parameters and gives the
// others the result, else 0.
StateTraffic state_traffic(std::size_t parameters, std::string_view optimizer, int ranks, int zero);

// So many bytes moved with next to no arithmetic: what the step's update and reduction cannot be faster than, as long
// as they do not fit the caches.
class MemoryFloor {
 public:
  explicit MemoryFloor(const StateTraffic& traffic);

  void run();

 private:
  std::vector<float> updated_, read_, written_;
};

}  // namespace ddprun::bench
