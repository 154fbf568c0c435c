#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/error.h"
#include "common/unique_fd.h"
#include "rendezvous/store/tcp_socket.h"

namespace ddprun::rendezvous {

// Accepts the connections of a store server. Out of descriptors or memory it asks for slow clients to be closed, else
// tries again after a pause, and reports once when that lasts.
//
// Ownership: the event loop outlives it; handlers that are queued keep it alive until they have run. Threads: the
// loop's. Errors: the constructor throws Errc::io naming the address if it cannot listen.
class StoreAcceptor : public std::enable_shared_from_this<StoreAcceptor> {
 public:
  struct Handlers {
    std::function<void(UniqueFd, const sockaddr_storage& peer)> accepted;
    std::function<bool()> has_room;      // false: nothing is accepted until resume()
    std::function<bool()> free_some;     // closes slow clients; returns whether there were any
    std::function<std::size_t()> count;  // of open connections, for messages
    std::function<void(const std::string&)> warn;
  };
  StoreAcceptor(boost::asio::io_context& loop, const std::string& host, std::uint16_t port);

  // Accepts connections from now on.
  void start(Handlers handlers);
  // Goes on after has_room() was false.
  void resume();
  // No handler is called any more.
  void stop();
  // Has the kernel report a connection only once its first bytes are there.
  void defer();

  const SocketAddress& address() const { return address_; }
  std::string endpoint() const;
  // The listener runs once, on the loop, when clients have waited for `bound` and none could be accepted.
  void on_failure(std::chrono::milliseconds bound, std::function<void(const Error&)> listener);

 private:
  using Clock = std::chrono::steady_clock;

  void accept_ready();
  void pause(int cause);
  void report_failure(int cause);

  boost::asio::io_context& loop_;
  boost::asio::posix::stream_descriptor listener_;
  const SocketAddress address_;
  boost::asio::steady_timer timer_;
  Handlers handlers_;
  std::optional<Clock::time_point> failing_since_;
  std::chrono::milliseconds bound_{};
  std::function<void(const Error&)> failed_;
  bool stopped_ = false;
};

}  // namespace ddprun::rendezvous
