#include "tests/bench/train_step/memory_floor.h"

#include <algorithm>

namespace ddprun::bench {

StateTraffic state_traffic(std::size_t parameters, std::string_view optimizer, int ranks, int zero) {
  const std::size_t all = parameters * sizeof(float);
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t own = zero > 0 ? all / n : all;  // bytes of the parameters that this rank updates
  StateTraffic traffic{.updated = own * (optimizer == "adam" ? 3 : 1), .read = own, .written = all};
  if (ranks == 1) return traffic;
  traffic.read += all;     // every rank sums 1/n of the gradients of all n
  traffic.written += own;  // the sums for all ranks, or for itself
  if (zero > 0) {
    traffic.read += all - own;  // the parameters that others have updated
    traffic.written += all - own;
  }
  return traffic;
}

MemoryFloor::MemoryFloor(const StateTraffic& traffic)
    : updated_(traffic.updated / sizeof(float)),
      read_(traffic.read / sizeof(float)),
      written_(traffic.written / sizeof(float)) {}

void MemoryFloor::run() {
  for (float& value : updated_) value = value * 0.5F + 1;
  float sum[16] = {};  // the lanes' additions do not wait for each other
  for (std::size_t i = 0; i + 16 <= read_.size(); i += 16)
    for (std::size_t lane = 0; lane < 16; ++lane) sum[lane] += read_[i + lane];
  const float all = *std::max_element(std::begin(sum), std::end(sum));
  std::fill(written_.begin(), written_.end(), all + 1);
}

}  // namespace ddprun::bench
