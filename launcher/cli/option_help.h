#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"

namespace ddprun {

// One option as the help page, the manual page and the completion scripts show it.
struct OptionHelp {
  std::string name;  // the name with underscores
  char short_name = 0;
  bool flag = false;
  bool added = false;               // see OptionInfo
  bool path = false;                // its value is a file or folder
  std::string help;                 // unit and default included
  std::vector<std::string> values;  // values to offer for completion; others may be valid too
};

// Makes the help for options that have no Setting.
std::vector<OptionHelp> option_help(const std::vector<OptionInfo>& options);
// Makes the help for every option that is not refused; those that print a page come last.
std::vector<OptionHelp> option_help(const LaunchSettings& settings);

}  // namespace ddprun
