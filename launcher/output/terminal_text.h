#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

// What may stand within one line of a terminal: text, tabs, colours (ECMA-48 SGR, "ESC [ ... m") and hyperlinks. Every
// other control sequence and control character is left out, so that nothing moves the cursor away or erases what others
// wrote. At most max_columns columns, a character counting as one whatever its width, a tab as eight; colours behind
// the cut are kept, and one that is still on at the end is ended there.
std::string one_line_text(std::string_view text, std::size_t max_columns = std::string_view::npos);

// Without colours too.
std::string plain_text(std::string_view text);

// Columns that one_line_text() would let through.
std::size_t columns_of(std::string_view text);

// What a terminal shows of a line in which a progress bar redrew itself: the text behind the last carriage return, one
// at the end of the line left aside.
std::string_view after_last_redraw(std::string_view line);

}  // namespace ddprun
