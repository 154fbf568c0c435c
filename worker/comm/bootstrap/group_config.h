#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ddprun/worker/comm/group_options.h"

// What all ranks of a group have to ask for alike: those that differ would wait for each other, read each other's
// messages wrongly, or take each other for frozen. Values and their text.
namespace ddprun::comm {

// A line of phrases: "back end gloo; size 4; ...". backend: by the name that was asked for, auto too.
std::string config_text(std::string_view backend, const GroupOptions& options);

struct ConfigClaim {
  std::string who;  // "rank 0 (pid 42 on host b)"
  std::string terms;
  friend bool operator==(const ConfigClaim&, const ConfigClaim&) = default;
};
std::string encode(const ConfigClaim& claim);
ConfigClaim decode_claim(std::string_view text);

// "rank 0 (...) asks for back end gloo, rank 1 (...) for back end shm": the first in which they differ, if any.
std::optional<std::string> describe_mismatch(const ConfigClaim& one, const ConfigClaim& other);

}  // namespace ddprun::comm
