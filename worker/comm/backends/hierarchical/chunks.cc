#include "ddprun/worker/comm/backends/hierarchical/chunks.h"

#include <algorithm>

namespace ddprun::comm {
namespace {

// Below it one exchange between the hosts costs less than several side by side.
constexpr std::size_t split_bytes = std::size_t{64} * 1024;
// Before the first slice is summed and after the last one came, the network is idle: the more slices the better. One is
// long against the latency of a network, of which rails hide the most by having two under way.
constexpr std::size_t slices_wanted = 64;
constexpr std::size_t least_slice_bytes = std::size_t{128} * 1024;
constexpr std::size_t most_slice_bytes = std::size_t{1024} * 1024;

std::size_t ceiling(std::size_t value, std::size_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace

std::vector<Chunk> chunks_of_buffer(std::size_t count, std::size_t element_bytes, int leaders) {
  std::vector<Chunk> pieces;
  if (count * element_bytes < split_bytes) leaders = 1;
  const auto share = count / static_cast<std::size_t>(leaders);  // of one leader, in all
  const auto rest = count % static_cast<std::size_t>(leaders);
  if (rest > 0) pieces.push_back({count - rest, rest, 1});
  const auto slice_bytes = std::clamp(share * element_bytes / slices_wanted, least_slice_bytes, most_slice_bytes);
  const auto number = ceiling(share * element_bytes, slice_bytes);
  for (std::size_t i = 0; i < number; ++i) {
    const auto begin = share * i / number, end = share * (i + 1) / number;
    const auto width = static_cast<std::size_t>(leaders);
    pieces.push_back({begin * width, (end - begin) * width, leaders});
  }
  return pieces;
}

}  // namespace ddprun::comm
