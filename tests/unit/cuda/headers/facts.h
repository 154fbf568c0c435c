#pragma once

#include <map>
#include <string>

namespace ddprun::testing {

// What a header says, by name: a function's type, a constant's value, where a field is.
using Facts = std::map<std::string, std::string>;

}  // namespace ddprun::testing
