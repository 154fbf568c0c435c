#pragma once

namespace ddprun::trainer {

// Removes the signal handlers that UCX installs when it is loaded (for SIGSEGV, SIGHUP and others). Debian 13's Gloo
// links MPI, which links UCX: a worker would outlive the end of its terminal, and a crash would be reported by a
// library that the job does not use. Call it at the beginning of main(), before other threads exist.
void remove_handlers_of_ucx() noexcept;

}  // namespace ddprun::trainer
