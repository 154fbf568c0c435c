#pragma once

#include <string>
#include <vector>

#include "ddprun/launcher/cli/option_page.h"
#include "ddprun/launcher/cli/verbs.h"

namespace ddprun {

// Completion scripts for the command ddprun: option names in both spellings, values where they are known words or
// paths, then a verb with its options or the script, then files. bash 4 or newer, without the bash-completion package;
// zsh 5 (a file _ddprun in its fpath).
std::string bash_completion(const std::vector<OptionPage>& options, const std::vector<Verb>& verbs);
std::string zsh_completion(const std::vector<OptionPage>& options, const std::vector<Verb>& verbs);

}  // namespace ddprun
