#pragma once

#include <string>
#include <vector>

#include "ddprun/launcher/cli/options.h"

namespace ddprun {

// One option as pages for people and completions for shells show it.
struct OptionPage {
  std::string name;  // with underscores
  char short_name = 0;
  bool flag = false;
  bool added = false;               // see OptionInfo
  bool path = false;                // its value is a file or folder
  std::string help;                 // unit and default included
  std::vector<std::string> values;  // worth offering; others may be valid too
  std::string variable;             // PET_<NAME>; empty for an option that is no setting
};

// Of options that are no settings.
std::vector<OptionPage> option_pages(const std::vector<OptionInfo>& options);
// Every option that is not refused, those that print a page last.
std::vector<OptionPage> option_pages(const LaunchSettings& settings);

}  // namespace ddprun
