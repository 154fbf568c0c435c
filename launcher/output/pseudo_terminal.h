#pragma once

#include <optional>

#include "common/unique_fd.h"
#include "launcher/output/screen.h"

namespace ddprun {

// Returns nullopt when the descriptor is no terminal. A terminal that does not know its size has WindowSize's default.
std::optional<WindowSize> window_size(int fd);

// A pseudo-terminal (pty(7)) for a worker that shares the real terminal with others. The worker writes to worker_end
// and sees a terminal (isatty(3)) of the given size; its output can be read from master unchanged (raw mode: no echo,
// no newline translation). It is no process's controlling terminal. Reading from master fails with EIO once no writer
// is left. Both ends are owned and close on exec.
struct PseudoTerminal {
  UniqueFd master;
  UniqueFd worker_end;

  // Returns nullopt where the system has none available (no /dev/ptmx in a container, or all in use).
  static std::optional<PseudoTerminal> open(WindowSize size);
};

// Sets the size that the worker at the other end sees.
void set_window_size(int master, WindowSize size);

}  // namespace ddprun
