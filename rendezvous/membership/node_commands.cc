#include "rendezvous/membership/node_commands.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "common/printable.h"

namespace ddprun {
namespace {

using Command = std::vector<std::string>;

constexpr std::size_t max_words = 256;
constexpr std::size_t max_word_bytes = 512;
constexpr std::size_t max_bytes = 4096;

bool same(const Command& a, const Command& b) {
  return a.empty() || b.empty() || a == b;
}

std::string name_of(const RoundMember& member) {
  return fmt::format("node {} (host {})", member.group_rank, member.host);
}

std::string quoted(const std::string& word) {
  return "'" + printable(word) + "'";
}

}  // namespace

Command command_to_compare(const Command& command) {
  Command words;
  std::size_t left = max_bytes;
  for (const auto& word : command) {
    if (words.size() == max_words || left == 0) break;
    words.push_back(word.substr(0, std::min(max_word_bytes, left)));
    left -= words.back().size();
  }
  return words;
}

std::optional<CommandDifference> find_command_difference(const std::vector<Command>& commands) {
  std::optional<CommandDifference> difference;
  for (std::size_t i = 1; i < commands.size(); ++i) {
    if (same(commands[0], commands[i])) continue;
    if (!difference) difference = {.first = commands[0], .other = static_cast<int>(i), .others = commands[i]};
    ++difference->count;
  }
  return difference;
}

std::string describe_command_difference(const Command& here, const Command& there) {
  const std::size_t most = std::max(here.size(), there.size());
  for (std::size_t i = 0; i < most; ++i) {
    const std::string place = i == 0 ? "the program" : fmt::format("argument {}", i);
    if (i >= here.size()) return fmt::format("{} is {} there and missing here", place, quoted(there[i]));
    if (i >= there.size()) return fmt::format("{} is {} here and missing there", place, quoted(here[i]));
    if (here[i] != there[i]) return fmt::format("{} is {} there and {} here", place, quoted(there[i]), quoted(here[i]));
  }
  return "";
}

std::string command_difference_text(const Round& round, const Command& own) {
  if (!round.commands) return "";
  const auto& commands = *round.commands;
  if (!same(own, commands.first))
    return fmt::format("this node runs another command than {}: {}", name_of(round.members.front()),
                       describe_command_difference(own, commands.first));
  const RoundMember& other = round.members.at(static_cast<std::size_t>(commands.other));
  const std::string more = commands.count > 1 ? fmt::format(" and {} more run", commands.count - 1) : " runs";
  return fmt::format("{}{} another command than this node: {}", name_of(other), more,
                     describe_command_difference(commands.first, commands.others));
}

}  // namespace ddprun
