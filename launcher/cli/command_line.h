#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/options.h"

namespace ddprun {

inline constexpr const char* usage_line = "usage: ddprun [options] train.cfg|script.py|program [arguments...]";

// A parsed command line: the launcher's options come before the script; those after the script are passed to it.
struct CommandLine {
  // A page that is printed instead of starting a job.
  enum class Page { none, help, version, bash_completion, zsh_completion, tcsh_completion, man } page = Page::none;
  std::vector<std::string> command;  // the script and its arguments; empty only with a page
};

// The launcher's options in one spelling, "--name=value" or "--flag", and the arguments after them.
struct NormalForm {
  std::vector<std::string> options;
  std::vector<std::string> command;
};

// An option of a NormalForm, split. A flag has no value.
struct GivenOption {
  std::string name;
  std::optional<std::string> value;
};
GivenOption given_option(const std::string& normal);

// Brings argv (without the program's name) into normal form: dashes and underscores are equal, "--opt value" is
// "--opt=value", unique prefixes are completed, -m -r -t may have their value attached. A prefix that is unique among
// torchrun's options means that option, even if ddprun added others. The first argument that is not an option is the
// script. Throws Errc::usage for an option that is unknown (with the nearest one), ambiguous or refused, and for a
// missing or superfluous value.
NormalForm normal_form(const std::vector<std::string>& arguments, const std::vector<OptionInfo>& table);

// Parses argv and assigns its options to the settings; "help" alone is the same as "--help". Throws Errc::usage.
CommandLine parse_command_line(const std::vector<std::string>& arguments, LaunchSettings& settings);

}  // namespace ddprun
