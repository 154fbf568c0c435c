#pragma once

#include <string>
#include <vector>

#include "ddprun/launcher/cli/options.h"

namespace ddprun {

// A command line taken apart: launcher options before the script, everything behind it untouched.
struct CommandLine {
  bool help = false;
  bool version = false;
  std::vector<std::string> command;  // the script and its arguments; empty only with help or version
};

// Launcher options in one spelling, "--name=value" or "--flag", and what follows them.
struct NormalForm {
  std::vector<std::string> options;
  std::vector<std::string> command;
};

// Brings argv (without the program's name) into normal form against the table: dashes and underscores alike, "--opt
// value" and "--opt=value", unique prefixes, -m -r -t with the value behind or attached. The first argument that is no
// option is the script. Throws Errc::usage: an unknown option (naming the nearest), an ambiguous one, one that is not
// supported yet, a missing or superfluous value.
NormalForm normal_form(const std::vector<std::string>& arguments, const std::vector<OptionInfo>& table);

// Parses argv and assigns what it says to settings. Throws Errc::usage.
CommandLine parse_command_line(const std::vector<std::string>& arguments, LaunchSettings& settings);

// The text of --help.
std::string help_text(const LaunchSettings& settings);

}  // namespace ddprun
