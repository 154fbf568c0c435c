#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/options.h"

namespace ddprun {

// A command about a job, given instead of the script; it starts no job.
struct Subcommand {
  std::string name;
  std::string help;
  std::vector<OptionInfo> options;
  std::string operand{};  // placeholder of the one word that it takes, such as LOGDIR; empty: it takes none
};

// The parsed words after a subcommand's name. A value.
struct SubcommandLine {
  std::map<std::string, std::string, std::less<>> values;  // by option; the value of a flag is empty
  std::string operand;

  bool has(std::string_view option) const { return values.contains(option); }
  // Returns empty text if the option was not given.
  std::string value(std::string_view option) const;
};

const std::vector<Subcommand>& subcommands();

// Returns null if there is none of that name.
const Subcommand* find_subcommand(std::string_view name);

// arguments are those after the subcommand's name. Throws Errc::usage for an unknown option, a missing or superfluous
// value or word. With --help the operand may be missing.
SubcommandLine parse_subcommand(const Subcommand& subcommand, const std::vector<std::string>& arguments);

// The text of ddprun VERB --help.
std::string help_text(const Subcommand& subcommand);

}  // namespace ddprun
