#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// What stands in front of a worker's lines, as torchrun has it unless TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE says other.
inline constexpr std::string_view default_line_prefix = "[${role_name}${local_rank}]:";

// The text with ${role_name}, ${local_rank} and ${rank} replaced, also without their braces; "$$" is one '$', and any
// other '$' stays.
std::string line_prefix(std::string_view text, std::string_view role, int local_rank, int rank);

}  // namespace ddprun
