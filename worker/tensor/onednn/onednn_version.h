#pragma once

#include <string>

namespace ddprun {

// The version of the oneDNN that is loaded, such as "2.6.0".
std::string onednn_version();

}  // namespace ddprun
