#pragma once

#include <string>
#include <string_view>
#include <vector>

// Slurm's compact lists, as in its environment variables.
namespace ddprun {

// The hosts of a node list, in order: "n[08-10,12],r[0-1]c[1-2]" -> n08 n09 n10 n12 r0c1 r0c2 r1c1 r1c2. Throws
// Errc::usage naming the text, also if there are more hosts than a job can have.
std::vector<std::string> expand_node_list(std::string_view text);

// One number per node: "2(x3),1" -> 2 2 2 1. Throws Errc::usage.
std::vector<int> expand_counts(std::string_view text);

}  // namespace ddprun
