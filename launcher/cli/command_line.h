#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddprun/launcher/cli/options.h"

namespace ddprun {

// A command line taken apart: launcher options before the script, everything behind it untouched.
struct CommandLine {
  // A page that is printed instead of running anything: --help, --version, --completion SHELL, --man.
  enum class Page { none, help, version, bash_completion, zsh_completion, man } page = Page::none;
  std::vector<std::string> command;  // the script and its arguments; empty only with a page
};

// Launcher options in one spelling, "--name=value" or "--flag", and what follows them.
struct NormalForm {
  std::vector<std::string> options;
  std::vector<std::string> command;
};

// One of those options taken apart. A flag has no value.
struct GivenOption {
  std::string name;
  std::optional<std::string> value;
};
GivenOption given_option(const std::string& normal);

// Brings argv (without the program's name) into normal form against the table: dashes and underscores alike, "--opt
// value" and "--opt=value", unique prefixes, -m -r -t with the value behind or attached. A prefix that is unique among
// torchrun's options stands for that one, whatever was added to them. The first argument that is no option is the
// script. Throws Errc::usage: an unknown option (naming the nearest), an ambiguous one, one that is refused, a missing
// or superfluous value.
NormalForm normal_form(const std::vector<std::string>& arguments, const std::vector<OptionInfo>& table);

// Parses argv and assigns what it says to settings. Throws Errc::usage.
CommandLine parse_command_line(const std::vector<std::string>& arguments, LaunchSettings& settings);

// The text of --help.
std::string help_text(const LaunchSettings& settings);

}  // namespace ddprun
