#pragma once

#include <memory>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/trust/credentials.h"
#include "rendezvous/trust/tls_channel.h"

namespace ddprun::rendezvous {

// authenticate() for clients on an event loop. The socket and the credentials must outlive the coroutine; closing the
// socket ends it. Throws AuthenticationError where the server has not proved that it knows the token, or closes the
// connection instead, and Errc::connection_lost for any other end of the connection.
boost::asio::awaitable<std::unique_ptr<TlsChannel>> async_authenticate(boost::asio::ip::tcp::socket& socket,
                                                                       const Credentials& credentials);

}  // namespace ddprun::rendezvous
