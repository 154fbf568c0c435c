#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ddprun/launcher/cli/options.h"

namespace ddprun {

// A word in place of the script: a command about a job, which starts none.
struct Subcommand {
  std::string name;
  std::string help;
  std::vector<OptionInfo> options;
};

const std::vector<Subcommand>& subcommands();

// Null if there is none of that name.
const Subcommand* find_subcommand(std::string_view name);

// The text of ddprun VERB --help.
std::string help_text(const Subcommand& subcommand);

}  // namespace ddprun
