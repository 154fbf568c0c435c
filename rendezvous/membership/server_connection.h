#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "common/unique_fd.h"
#include "rendezvous/trust/credentials.h"
#include "rendezvous/trust/tls_channel.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// One connection of a node to a rendezvous server, encrypted once it is authenticated.
// Ownership: shared, since a write keeps it alive. The loop must outlive it, and so must the object of a coroutine.
// Threads: the loop's only. Errors: see each function; after one the connection is closed or to be closed.
class ServerConnection : public std::enable_shared_from_this<ServerConnection> {
 public:
  explicit ServerConnection(boost::asio::io_context& loop) : socket_(loop) {}

  // Returns the problem; empty on success.
  boost::asio::awaitable<std::string> connect(const std::vector<boost::asio::ip::tcp::endpoint>& endpoints);
  // The connection is this one, to a server in this process.
  void adopt(UniqueFd connection);
  // Throws what rendezvous::async_authenticate() throws.
  boost::asio::awaitable<void> authenticate(const Credentials& credentials);
  // Returns whether PyTorch's store server is at the other end, which nothing else has been sent to. It closes a
  // connection that sends SESSION, as does a ddprun server that shuts down, so the two are told apart by the reply to a
  // CHECK of probe_key.
  boost::asio::awaitable<bool> is_torch_store();

  struct Received {
    std::string_view text;  // valid until the next call
    std::string problem;    // why there is none; empty on success
    bool at_end = false;    // the server has closed the connection
  };
  boost::asio::awaitable<Received> read();
  // Queues the text. A failure ends read().
  void write(std::string text);
  // Writes what the socket accepts at once, if nothing is queued.
  void write_at_once(std::string text);
  void close();
  // Closes it so that the server reads nothing more of what was sent.
  void reset();

 private:
  std::string sealed(std::string text);
  void write_next();

  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<TlsChannel> channel_;  // null: clear text
  std::deque<std::string> outgoing_;
  std::array<char, 16384> chunk_{};
  std::string opened_;
};

}  // namespace ddprun
