#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// torchrun's prefix of a worker's lines, used unless --log_line_prefix_template is given.
inline constexpr std::string_view default_line_prefix = "[${role_name}${local_rank}]:";

// The worker that a prefix is made for.
struct PrefixValues {
  std::string_view role;
  int local_rank = 0;
  int rank = 0;
  std::string_view host;
};

// The template with ${role_name}, ${local_rank}, ${rank} and ${hostname} replaced, as Python's string.Template does:
// braces are optional, "$$" is one '$', and any other '$' stays.
std::string line_prefix(std::string_view prefix_template, const PrefixValues& values);

}  // namespace ddprun
