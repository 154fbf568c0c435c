#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ddprun/rendezvous/store/session_hub.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct StoreServerOptions {
  std::string host;  // numeric address to bind; empty: the wildcard, IPv6 and IPv4 together where the machine has both
  std::uint16_t port = 0;                             // 0: one that the kernel chooses
  std::chrono::milliseconds start_timeout{30'000};    // from accept to a complete VALIDATE
  std::chrono::milliseconds request_timeout{30'000};  // a request half sent, without a further byte
  std::chrono::milliseconds write_timeout{60'000};    // replies waiting, without the client reading a byte
  std::size_t max_queued_bytes = 256u << 20;          // replies and session frames one connection may have waiting
};

// Serves one StoreState over TCP to PyTorch's and our clients (PROTOCOL.md). Listens once constructed; runs entirely on
// the event loop handed in, which must be run by one thread, and serves as long as it lives. Construct and destroy it
// on that thread, or while the loop does not run; the loop must live longer.
//
// A connection that breaks the protocol, stalls or does not read is closed with one log line that names the peer (lines
// are rate limited); nobody else is disturbed. Throws Errc::io naming the address when it cannot listen.
class StoreServer {
 public:
  StoreServer(boost::asio::io_context& loop, const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const;
  // "[::]:29400"
  std::string endpoint() const;
  std::size_t connections() const;

  // Removes the keys and queues that it picks, by their names on the wire ("/k").
  void erase_if(const std::function<bool(std::string_view)>& pick);

  // Sessions go to hub, which must live until it is replaced or the server destroyed. Without one (nullptr, as at
  // first), SESSION is an unknown opcode.
  void set_session_hub(SessionHub* hub);
  // Lives as long as the server.
  SessionSender& session_sender();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
