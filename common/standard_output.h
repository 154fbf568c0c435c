#pragma once

#include <string_view>

namespace ddprun {

// Standard output for programs whose exit code must not be 0 when their output was lost (a full disk, /dev/full):
// exit() itself ignores such errors. A reader that has closed its pipe ends the process by SIGPIPE, as usual. Both
// functions throw Errc::io with the cause.

// Writes the text and flushes it.
void write_standard_output(std::string_view text);

// Flushes output that was written with stdio, and reports any earlier error.
void flush_standard_output();

}  // namespace ddprun
