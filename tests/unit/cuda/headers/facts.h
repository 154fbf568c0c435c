#pragma once

#include <map>
#include <string>

namespace ddprun::testing {

// The facts of a header, by name: a function's type, a constant's value, a field's offset.
using Facts = std::map<std::string, std::string>;

}  // namespace ddprun::testing
