#pragma once

#include <string>

namespace ddprun {

// Of the oneDNN that is loaded, "2.6.0".
std::string onednn_version();

}  // namespace ddprun
