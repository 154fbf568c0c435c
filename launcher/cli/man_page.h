#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/option_help.h"
#include "launcher/cli/subcommands.h"

namespace ddprun {

// The source of the manual page ddprun(1), in groff's man macros.
std::string man_page(const std::vector<OptionHelp>& options, const std::vector<Subcommand>& subcommands,
                     std::string_view version);

}  // namespace ddprun
