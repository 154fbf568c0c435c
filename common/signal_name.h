#pragma once

#include <cstring>
#include <string>

namespace ddprun {

// "SIGKILL" for 9; "signal 70" if it has no name.
inline std::string signal_name(int signal_number) {
  const char* name = ::sigabbrev_np(signal_number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal_number);
}

}  // namespace ddprun
