#pragma once

#include <string_view>

#include "ddprun/common/unique_fd.h"

namespace ddprun {

// Both ends of a pipe; they are closed on exec.
struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

// Throws Errc::io, "cannot make <what>: <cause>".
Pipe make_pipe(std::string_view what = "a pipe");

}  // namespace ddprun
