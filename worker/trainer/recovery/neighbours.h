#pragma once

#include <string>
#include <vector>

namespace ddprun::trainer {

// The ranks between which copies of parts of the state travel.
struct Neighbours {
  int keeper = 0;  // has the copy of this rank's parts
  int kept = 0;    // the rank whose copy this one has
  friend bool operator==(const Neighbours&, const Neighbours&) = default;
};

// hosts: by rank. Returns those of a rank: the keeper is as many ranks further on, round the ring, as at every other
// rank, so many that as many ranks as possible have a keeper on another host. Pure.
Neighbours neighbours_of(int rank, const std::vector<std::string>& hosts);

}  // namespace ddprun::trainer
