#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/round.h"

// The commands that the nodes of a round run, and how they differ. Nodes may differ on purpose (a script with an
// argument for each node), so a difference is reported and not refused. No I/O. Errors: none.
namespace ddprun {

// The part of a command that a node sends to the others: long words and many words are cut, so that a round stays
// small.
std::vector<std::string> command_to_compare(const std::vector<std::string>& command);

// commands[i] belongs to group rank i. Empty commands (of an agent that gives none) are equal to any.
std::optional<CommandDifference> find_command_difference(const std::vector<std::vector<std::string>>& commands);

// One line for the user of the node round.self, which runs `own`; empty if its round has no difference.
std::string command_difference_text(const Round& round, const std::vector<std::string>& own);

// "argument 2 is '--lr=0.2' there and '--lr=0.1' here"
std::string describe_command_difference(const std::vector<std::string>& here, const std::vector<std::string>& there);

}  // namespace ddprun
