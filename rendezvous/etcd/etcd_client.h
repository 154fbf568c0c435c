#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "common/deadline.h"
#include "rendezvous/membership/node_address.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct EtcdServers {
  struct Endpoint {
    std::string host;
    std::uint16_t port = 2379;
  };
  std::vector<Endpoint> endpoints;  // at least one; members of one cluster
  // The timeout of one attempt at one member: dialling, sending and receiving the whole response.
  std::chrono::milliseconds attempt_timeout{2000};

  std::string text() const;  // "h1:2379,h2:2379"
};

// A client of etcd's JSON gateway over one HTTP/1.1 connection, kept open between calls. If the current server fails,
// the others are tried in turn.
// Ownership: the event loop must outlive it; the destructor aborts a call in progress.
// Threads: the event loop's; one call at a time. Errors: see call().
class EtcdClient {
 public:
  EtcdClient(boost::asio::io_context& loop, EtcdServers servers);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // POSTs body to path ("/v3/kv/txn") until a server responds; `about` names the key or lease in messages. Throws
  //   Errc::unreachable   no server responded by the deadline; names servers, path, about, elapsed time and cause
  //   Errc::peer_lost     the lease has expired
  //   Errc::unsupported   the server is not etcd v3 with its gateway
  //   Errc::io            etcd refused the request (permission, malformed)
  //   Errc::aborted       close() was called
  boost::asio::awaitable<boost::json::value> call(std::string path, boost::json::object body, std::string about,
                                                  Deadline deadline);

  // Does what call() does, but for a streaming response: passes each JSON value to listener. Tries one server once;
  // returns why the stream ended.
  using Listener = std::function<void(const boost::json::value&)>;
  boost::asio::awaitable<std::string> listen(std::string path, boost::json::object body, Listener listener);

  void set_attempt_timeout(std::chrono::milliseconds timeout);
  // The next attempt uses the next server.
  void use_next_server();
  // Aborts the call in progress; later calls throw Errc::aborted.
  void close();
  // Closes the connection, which ends a stream.
  void disconnect();
  // The two ends of the connection; empty if there is none.
  SessionAddresses addresses() const;
  const EtcdServers& servers() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
