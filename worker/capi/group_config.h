#pragma once

#include <string>

#include "worker/capi/ddprun.h"
#include "worker/comm/comm_config.h"

namespace ddprun::capi {

inline std::string text_of(const char* text, const char* otherwise = "") {
  return text ? text : otherwise;
}

// Returns the settings that a caller's options say, with the defaults for those that are 0 or NULL.
CommConfig group_config(const ddprun_group_options& options);

}  // namespace ddprun::capi
