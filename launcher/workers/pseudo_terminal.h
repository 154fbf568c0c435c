#pragma once

#include <optional>

#include "ddprun/common/unique_fd.h"
#include "ddprun/launcher/output/screen.h"

namespace ddprun {

// Nothing when the descriptor is no terminal; a terminal that does not know its size has WindowSize's default.
std::optional<WindowSize> window_size(int fd);

// Stands for a terminal before a worker that has to share the real one: the worker writes to worker_end and finds a
// terminal (isatty(3)) of the given size; what it writes comes out of master unchanged (raw: no echo, no translated
// newlines). Nobody's controlling terminal. A read of master gives EIO once no writer is left (pty(7)). Both ends close
// on exec.
struct PseudoTerminal {
  UniqueFd master;
  UniqueFd worker_end;

  // Nothing where the system has none to give (no /dev/ptmx in a container, or all in use).
  static std::optional<PseudoTerminal> open(WindowSize size);
};

// Of the worker that has this master's other end.
void set_window_size(int master, WindowSize size);

}  // namespace ddprun
