#include "rendezvous/store/async_authenticate.h"

#include <array>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "common/error.h"
#include "rendezvous/store/awaited.h"
#include "rendezvous/trust/authentication_error.h"
#include "rendezvous/trust/client_handshake.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

[[noreturn]] void fail(const boost::system::error_code& error) {
  const bool closed =
      error == asio::error::eof || error == asio::error::connection_reset || error == asio::error::broken_pipe;
  if (closed) throw AuthenticationError(closed_during_handshake);
  throw Error(Errc::connection_lost, error.message());
}

}  // namespace

asio::awaitable<std::unique_ptr<TlsChannel>> async_authenticate(asio::ip::tcp::socket& socket,
                                                                const Credentials& credentials) {
  ClientHandshake handshake(credentials);
  std::array<char, 2048> received{};
  for (;;) {
    const auto output = handshake.take_output();
    if (const auto [error, size] = co_await asio::async_write(socket, asio::buffer(output), awaited); error)
      fail(error);
    if (handshake.is_complete()) co_return handshake.take_channel();
    const auto [error, size] = co_await socket.async_read_some(asio::buffer(received), awaited);
    if (error) fail(error);
    handshake.feed({received.data(), size});
  }
}

}  // namespace ddprun::rendezvous
