#pragma once

#include <string_view>

#include "common/unique_fd.h"

namespace ddprun {

// Both ends of a pipe; they are closed on exec.
struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

// Throws Errc::io, "cannot make <what>: <cause>".
Pipe make_pipe(std::string_view what = "a pipe");

// From now on a write to a pipe or socket without a reader fails with EPIPE, and SIGPIPE does not end this process. It
// installs a handler instead of SIG_IGN, since an exec resets it: the programs that are started have the default.
void catch_sigpipe();

}  // namespace ddprun
