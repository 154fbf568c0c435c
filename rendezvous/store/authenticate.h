#pragma once

#include <memory>

#include "common/deadline.h"
#include "rendezvous/trust/credentials.h"
#include "rendezvous/trust/tls_channel.h"

namespace ddprun::rendezvous {

// Authenticates both ends of a connected socket, before its first request. Returns the channel that encrypts the
// connection from now on; null if it is clear text. Throws AuthenticationError, and Errc::timeout and
// Errc::connection_lost as send_all() and receive_some() do.
std::unique_ptr<TlsChannel> authenticate(int fd, const Credentials& credentials, Deadline deadline);

}  // namespace ddprun::rendezvous
