#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <sys/socket.h>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/deadline.h"

namespace boost::asio {
class io_context;
}

// Lookups of host names for TCP. getaddrinfo(3) can neither be bounded nor cancelled, and takes 10 to 30 s where the
// name server does not answer. So it runs on a thread of its own, and its waiters can give up: the thread then ends
// with the lookup, or with the process. A numeric address needs no thread.
namespace ddprun::rendezvous {

struct HostAddress {
  sockaddr_storage raw{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&raw); }
  std::string text() const;  // numeric, without the port
};

struct HostAddresses {
  std::vector<HostAddress> found;
  std::string problem;  // "cannot resolve host 'a': Name or service not known"; empty on success
};

std::vector<boost::asio::ip::tcp::endpoint> tcp_endpoints(const HostAddresses& addresses);

// The problem of a lookup that was given up.
std::string unanswered_lookup_text(const std::string& host);

// Blocks until the lookup has ended, the deadline has passed or a stop is requested. Threads: any. Errors: none thrown;
// see HostAddresses::problem.
HostAddresses look_up_host(const std::string& host, std::uint16_t port, Deadline deadline,
                           const std::stop_token& stop = {});

// Lookups for one event loop, one at a time.
// Ownership: the loop must outlive it, and cancel() has to be called before the loop ends. Threads: the loop's.
// Errors: none thrown.
class HostLookup {
 public:
  explicit HostLookup(boost::asio::io_context& loop);
  ~HostLookup();
  HostLookup(const HostLookup&) = delete;
  HostLookup& operator=(const HostLookup&) = delete;

  // Returns nullopt after cancel(). The lookup continues then, and the next call for the same name waits for it, so
  // that a slow name server gets the time of all attempts together.
  boost::asio::awaitable<std::optional<HostAddresses>> resolve(std::string host, std::uint16_t port);
  void cancel();
  bool pending() const { return waiting_; }

 private:
  class Pending;
  friend HostAddresses look_up_host(const std::string&, std::uint16_t, Deadline, const std::stop_token&);

  boost::asio::io_context& loop_;
  std::shared_ptr<boost::asio::steady_timer> done_;  // cancelled at the end of the wait
  std::shared_ptr<Pending> pending_;
  bool waiting_ = false;
};

}  // namespace ddprun::rendezvous
