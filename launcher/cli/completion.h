#pragma once

#include <string>
#include <vector>

#include "launcher/cli/option_help.h"
#include "launcher/cli/subcommands.h"

namespace ddprun {

// Completion scripts for ddprun: option names in both spellings, values that are known words or paths, then a
// subcommand with its options (in tcsh without) or the script, then files. For bash 4 or newer, without the
// bash-completion package, zsh 5 (as the file _ddprun in its fpath), and tcsh 6 (to be sourced).
std::string bash_completion(const std::vector<OptionHelp>& options, const std::vector<Subcommand>& subcommands);
std::string zsh_completion(const std::vector<OptionHelp>& options, const std::vector<Subcommand>& subcommands);
std::string tcsh_completion(const std::vector<OptionHelp>& options, const std::vector<Subcommand>& subcommands);

}  // namespace ddprun
