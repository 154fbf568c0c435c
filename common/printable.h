#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

// Text that is safe to show on a terminal: control characters other than newline and tab, and bytes that are not UTF-8,
// become \xNN. So a message that quotes a damaged file cannot send escape sequences to the terminal.
std::string printable(std::string_view text);

// The same for a quotation within one line: newlines and tabs become \xNN too, and text beyond limit bytes is cut and
// ends in "...".
std::string printable_line(std::string_view text, std::size_t limit = 200);

}  // namespace ddprun
