#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// The text as a terminal may show it: control characters other than newline and tab, and bytes that are not UTF-8, are
// written as \x1b. A message that quotes a damaged file thus cannot send escape sequences to the terminal.
std::string printable(std::string_view text);

}  // namespace ddprun
