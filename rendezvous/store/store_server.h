#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/unique_fd.h"
#include "rendezvous/store/session_hub.h"
#include "rendezvous/trust/admission.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct StoreServerOptions {
  std::string host;  // numeric address to bind; empty: the wildcard address, IPv6 and IPv4 if the machine has both
  std::uint16_t port = 0;                             // 0: chosen by the kernel
  std::chrono::milliseconds start_timeout{30'000};    // time from accept to a complete VALIDATE
  std::chrono::milliseconds request_timeout{30'000};  // time without a further byte of an incomplete request
  std::chrono::milliseconds write_timeout{60'000};    // time without the client reading a byte of queued replies
  std::size_t max_queued_bytes = 256u << 20;          // replies and session frames queued for one connection
  // A client that has sent no complete VALIDATE for this long is closed before start_timeout where it keeps others out:
  // if there are more such clients than max_starting, or no descriptor is free.
  std::chrono::milliseconds slow_start{1'000};
  std::size_t max_starting = 64;
  std::shared_ptr<const Admission> admission = nullptr;  // null: every client is served
};

// A store server over TCP for ddprun's and PyTorch's clients (PROTOCOL.md). Listens from construction to destruction.
// Ownership: the event loop must outlive it.
// Threads: one thread runs the loop; construct, call and destroy the server on that thread, or while the loop is not
//   running.
// Errors: the constructor throws Errc::io naming the address if it cannot listen, and with an admission
//   Errc::unsupported where the kernel does not report the owner of a socket. A connection that violates the
//   protocol, stalls or does not read its replies is closed with a rate-limited log line that names the peer; other
//   connections are not affected.
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

  // The listener runs once, on the loop, when clients have waited for `bound` and none could be accepted for lack of
  // descriptors or memory. The server keeps trying.
  void on_accept_failure(std::chrono::milliseconds bound, std::function<void(const Error&)> listener);

  // The process of this server will end in order: clients that ask learn it (Store::end_announced()). on_change is
  // called on the loop, not from within this call, whenever a client has learnt it or has closed.
  void announce_end(std::function<void()> on_change);
  // The number of clients that have not asked since then.
  std::size_t unaware() const;

  // Serves a client that has been admitted already, such as one of a Unix socket. sent: what was read of it so far.
  void adopt(UniqueFd client, std::string_view sent);

  // A connection from the server's own process, admitted as adopt() does. Throws Errc::io.
  UniqueFd connect_within();

  // The number of client requests that it has answered, by operation: "set", "get", ...; sessions are not counted.
  std::map<std::string, std::uint64_t> operations() const;

  // The value of a key, by its name on the wire; nullopt if there is none. session_sender() sets and erases keys.
  std::optional<std::string> find(std::string_view key) const;

  // The listener runs on the loop, not from within a call of this class, after clients have set a key (SET) whose name
  // on the wire contains `part`, or several.
  void on_set(std::string part, std::function<void()> listener);

  // Removes the keys and queues whose names on the wire ("/k") match.
  void erase_if(const std::function<bool(std::string_view)>& predicate);

  // Passes sessions to hub, which must live until it is replaced or the server is destroyed. Without a hub (nullptr,
  // the default) SESSION is refused.
  void set_session_hub(SessionHub* hub);
  SessionSender& session_sender();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
