#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// Returns the text in single quotes, as one word that a POSIX shell reads back as it is.
std::string shell_quoted(std::string_view text);

}  // namespace ddprun
