#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ddprun/launcher/cli/option_page.h"
#include "ddprun/launcher/cli/verbs.h"

namespace ddprun {

// The manual page ddprun(1), as source for man (groff's man macros).
std::string man_page(const std::vector<OptionPage>& options, const std::vector<Verb>& verbs, std::string_view version);

}  // namespace ddprun
