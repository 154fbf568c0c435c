#pragma once

#include <string>

namespace ddprun::comm {

// Of the Gloo that this was built with, "0.5.0".
std::string gloo_version();

}  // namespace ddprun::comm
