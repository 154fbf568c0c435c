#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// Text from a file or a peer, made safe for a terminal and a log line: control characters and bytes that are not UTF-8
// become \xNN. Other text is unchanged.
std::string printable(std::string_view text);

}  // namespace ddprun
