#pragma once

#include <cstddef>
#include <vector>

namespace ddprun::comm {

// A part of a buffer that goes through the levels at once, in elements. Of each piece every leader takes one slice
// between the hosts: slices are of equal size and follow each other.
struct Chunk {
  std::size_t first = 0;
  std::size_t count = 0;
  int leaders = 1;  // count is a multiple of it

  std::size_t slice() const { return count / static_cast<std::size_t>(leaders); }
};

// The pieces of count elements of this width where a host has so many leaders. Small buffers, and what does not divide
// evenly, go through the first leader alone. A pure function: every rank finds the same.
std::vector<Chunk> chunks_of_buffer(std::size_t count, std::size_t element_bytes, int leaders);

}  // namespace ddprun::comm
