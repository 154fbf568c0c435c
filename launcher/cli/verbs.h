#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ddprun/launcher/cli/options.h"

namespace ddprun {

// A command of ddprun's own in the place of the script: it asks a running job and starts nothing.
struct Verb {
  std::string name;
  std::string help;
  std::vector<OptionInfo> options;  // with what describes them
};

const std::vector<Verb>& verbs();

// Null: a script or program of that name.
const Verb* find_verb(std::string_view name);

// The text of ddprun VERB --help.
std::string help_text(const Verb& verb);

}  // namespace ddprun
