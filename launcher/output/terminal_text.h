#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

// Text helpers for terminals: pure functions on strings.

// Reduces text to what may appear within one line of a terminal: characters, tabs, colours (ECMA-48 SGR, "ESC [ ... m")
// and hyperlinks. All other control sequences and characters are removed, so that nothing moves the cursor or erases
// other output. Returns at most max_columns columns; a character counts as one whatever its width, a tab as eight.
// Colours after the cut are kept, and a colour that is still on at the end is reset.
std::string one_line_text(std::string_view text, std::size_t max_columns = std::string_view::npos);

// Does what one_line_text() does, but without colours and hyperlinks.
std::string plain_text(std::string_view text);

// The number of columns that one_line_text() would return.
std::size_t columns_of(std::string_view text);

// The part of a line that a terminal shows after a progress bar redrew itself: the text after the last carriage return,
// ignoring those at the end of the line.
std::string_view after_last_redraw(std::string_view line);

}  // namespace ddprun
