#include "rendezvous/store/authenticate.h"

#include "common/error.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/trust/authentication_error.h"
#include "rendezvous/trust/client_handshake.h"

namespace ddprun::rendezvous {

std::unique_ptr<TlsChannel> authenticate(int fd, const Credentials& credentials, Deadline deadline) {
  ClientHandshake handshake(credentials);
  char received[2048];
  try {
    for (;;) {
      send_all(fd, handshake.take_output(), deadline);
      if (handshake.is_complete()) return handshake.take_channel();
      const auto size = receive_some(fd, received, sizeof received, deadline);
      handshake.feed({received, size});
    }
  } catch (const Error& e) {
    if (e.code() != Errc::connection_lost) throw;
    throw AuthenticationError(closed_during_handshake);
  }
}

}  // namespace ddprun::rendezvous
