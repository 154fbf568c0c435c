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

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/backends/node_address.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct EtcdServers {
  struct Endpoint {
    std::string host;
    std::uint16_t port = 2379;
  };
  std::vector<Endpoint> endpoints;  // at least one; equal members of one cluster
  // For one try at one of them: dialling, sending and the whole answer.
  std::chrono::milliseconds attempt_timeout{2000};

  std::string text() const;  // "h1:2379,h2:2379"
};

// One HTTP/1.1 connection to etcd's JSON gateway, kept open between calls, to whichever server answered last; the
// others are tried in turn when it does not. One call at a time. Lives on one event loop.
class EtcdClient {
 public:
  EtcdClient(boost::asio::io_context& loop, EtcdServers servers);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // POSTs body to path ("/v3/kv/txn") until a server answers; `about` names the key or lease in messages. Throws
  //   Errc::unreachable   no server gave an answer by the deadline: names servers, path, about, elapsed time, the cause
  //   Errc::peer_lost     the lease is gone
  //   Errc::unsupported   what answers is not etcd v3 with its gateway
  //   Errc::io            etcd refuses (permission, a malformed request)
  //   Errc::aborted       close() was called
  boost::asio::awaitable<boost::json::value> call(std::string path, boost::json::object body, std::string about,
                                                  Deadline deadline);

  // Like call, for an answer without end: hands over one JSON value after the other. Tries one server once; returns why
  // it has ended.
  using Listener = std::function<void(const boost::json::value&)>;
  boost::asio::awaitable<std::string> listen(std::string path, boost::json::object body, Listener listener);

  void set_attempt_timeout(std::chrono::milliseconds timeout);
  // Begins with the next server at the next try.
  void turn_to_next_server();
  // Ends what is under way; nothing works any more.
  void close();
  // Ends what is under way.
  void disconnect();
  // The two ends of the connection, empty when there is none.
  SessionAddresses addresses() const;
  const EtcdServers& servers() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
