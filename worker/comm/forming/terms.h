#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ddprun/worker/comm/group_options.h"

// What all ranks of a group have to ask for alike: those that differ would wait for each other, read each other's
// messages wrongly, or take each other for frozen. Values and their text.
namespace ddprun::comm {

// A line of phrases: "back end gloo; size 4; ...". backend: by the name that was asked for, auto too.
std::string terms_of(std::string_view backend, const GroupOptions& options);

struct Asker {
  std::string who;  // "rank 0 (pid 42 on host b)"
  std::string terms;
  friend bool operator==(const Asker&, const Asker&) = default;
};
std::string encode(const Asker& asker);
Asker decode_asker(std::string_view text);

// "rank 0 (...) asks for back end gloo, rank 1 (...) for back end shm": the first in which they differ, if any.
std::optional<std::string> name_difference(const Asker& one, const Asker& other);

}  // namespace ddprun::comm
