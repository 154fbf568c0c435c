#pragma once

namespace ddprun::comm {

// From this call on, Gloo survives a connection that the peer resets as soon as it is made, as the kernel does for a
// killed process. Gloo asks for the peer's name at that moment, and its event thread would end the process by an
// exception (Pair::handleConnected in gloo/transport/tcp/pair.cc); now it learns of the reset when it reads.
//
// Gloo has no hook for this, so the program has a getpeername() of its own before the C library's. It differs in one
// case: for a caller in libgloo, ENOTCONN becomes an address of no family. A shared object that is loaded later, such
// as a module of Python, cannot put its functions before the C library's; there the call has no effect.
void survive_reset_connections() noexcept;

}  // namespace ddprun::comm
