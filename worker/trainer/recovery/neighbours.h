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

// parts: by rank, as in Holdings; stays: by rank, false if it leaves the group. Returns by rank the one that stays to
// which it gives a copy of its part; -1: to none, since it stays, or a rank before it gives the same part, or one that
// stays has it, or none stays. Those that stay take turns. Pure.
std::vector<int> heirs_of(const std::vector<int>& parts, const std::vector<bool>& stays);

}  // namespace ddprun::trainer
