#pragma once

#include <cstddef>
#include <vector>

namespace ddprun::comm {

// A part of a buffer that moves through the two levels as a unit, in elements. It consists of one slice for each
// leader, which that leader exchanges between the hosts: slices are of equal size and follow each other.
struct Chunk {
  std::size_t first = 0;
  std::size_t count = 0;
  int leaders = 1;  // divides count

  std::size_t slice() const { return count / static_cast<std::size_t>(leaders); }
};

// Divides count elements of this width among so many leaders a host. Small buffers, and the remainder of a division, go
// through only the first leader. A pure function: every rank gets the same result.
std::vector<Chunk> chunks_of_buffer(std::size_t count, std::size_t element_bytes, int leaders);

}  // namespace ddprun::comm
