#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

// Text from a file or a peer, made safe to quote in a message: control characters and bytes that are not UTF-8 become
// \xNN, so that a damaged file cannot send escape sequences to the terminal; text beyond limit bytes is cut and ends in
// "...".
std::string printable(std::string_view text, std::size_t limit = 200);

// A JSON text whose strings come from outside, such as a host name: bytes that are not UTF-8, which JSON does not
// allow, become \\xNN, which a reader sees as \xNN.
std::string valid_json(std::string text);

}  // namespace ddprun
