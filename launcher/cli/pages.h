#pragma once

#include <string>

#include "launcher/cli/command_line.h"

namespace ddprun {

// The text that --help, --version, --completion and --man print. REQUIRES: page is not none.
std::string page_text(CommandLine::Page page, const LaunchSettings& settings);

// The text of --help.
std::string help_text(const LaunchSettings& settings);

}  // namespace ddprun
