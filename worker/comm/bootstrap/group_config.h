#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "worker/comm/group_options.h"

// The options that all ranks of a group have to share. Ranks that differ in one would wait for each other, misread each
// other's messages, or take each other for frozen. Values and their text.
namespace ddprun::comm {

struct GroupConfig {
  std::string backend;  // as requested: "auto" differs from the back end that it selects
  int size = 1;
  CommConfig shared;  // freeze_bound, heartbeat, checked and staging_bytes: as they apply; all others: the defaults
  friend bool operator==(const GroupConfig&, const GroupConfig&) = default;
};
GroupConfig group_config(std::string_view backend, const GroupOptions& options);

// A rank's configuration, as it publishes it for comparison.
struct ConfigClaim {
  std::string who;                    // "rank 0 (pid 42 on host b)"
  std::optional<GroupConfig> config;  // none if it is not readable, as another version of ddprun wrote it
  friend bool operator==(const ConfigClaim&, const ConfigClaim&) = default;
};
// Two lines of text: who, and the configuration.
std::string encode(const ConfigClaim& claim);
ConfigClaim decode_claim(std::string_view text);

// Returns the first field in which the two differ, with both values: "rank 0 (...) asks for back end gloo, rank 1 (...)
// for back end shm"; none if they agree.
std::optional<std::string> describe_mismatch(const ConfigClaim& one, const ConfigClaim& other);

}  // namespace ddprun::comm
