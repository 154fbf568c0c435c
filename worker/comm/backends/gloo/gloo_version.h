#pragma once

#include <string>

namespace ddprun::comm {

// The version of the Gloo that this was built with, such as "0.5.0".
std::string gloo_version();

}  // namespace ddprun::comm
