#include "worker/comm/backends/hierarchical/chunks.h"

#include <algorithm>

#include "common/rounding.h"

namespace ddprun::comm {
namespace {

// Smaller buffers are exchanged between the hosts by one leader: that costs less than several exchanges side by side.
constexpr std::size_t min_split_bytes = std::size_t{64} * 1024;
// The network is idle until the first slice is reduced within the host and after the last one has arrived, so many
// slices are better. A slice takes long compared with the network's latency, which rails mostly hide by having two in
// progress.
constexpr std::size_t slices_wanted = 64;
constexpr std::size_t min_slice_bytes = std::size_t{128} * 1024;
constexpr std::size_t max_slice_bytes = std::size_t{1024} * 1024;

}  // namespace

std::vector<Chunk> chunks_of_buffer(std::size_t count, std::size_t element_bytes, int leaders) {
  std::vector<Chunk> chunks;
  if (count * element_bytes < min_split_bytes) leaders = 1;
  const auto share = count / static_cast<std::size_t>(leaders);  // elements of one leader
  const auto rest = count % static_cast<std::size_t>(leaders);
  if (rest > 0) chunks.push_back({count - rest, rest, 1});
  const auto slice_bytes = std::clamp(share * element_bytes / slices_wanted, min_slice_bytes, max_slice_bytes);
  const auto number = divide_up(share * element_bytes, slice_bytes);
  for (std::size_t i = 0; i < number; ++i) {
    const auto begin = share * i / number, end = share * (i + 1) / number;
    const auto width = static_cast<std::size_t>(leaders);
    chunks.push_back({begin * width, (end - begin) * width, leaders});
  }
  return chunks;
}

}  // namespace ddprun::comm
