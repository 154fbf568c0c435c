#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddprun {

// "a, b and 3 more": for messages about names of which there may be many.
std::string first_names(const std::vector<std::string>& names, std::size_t shown = 5);

}  // namespace ddprun
