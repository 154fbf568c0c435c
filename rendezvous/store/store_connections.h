#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "rendezvous/store/log_limiter.h"
#include "rendezvous/store/polling.h"
#include "rendezvous/store/ready_set.h"
#include "rendezvous/store/store_connection.h"
#include "rendezvous/store/store_server.h"

namespace ddprun::rendezvous {

using ConnectionPtr = std::shared_ptr<StoreConnection>;

// Executes the requests of a store server's connections. An Error thrown by serve() closes the connection, with a log
// line.
class ConnectionHandler {
 public:
  virtual void serve(const ConnectionPtr& connection, const Request& request) = 0;
  // The connection is none of the server's any more; its socket is closed.
  virtual void closed(const ConnectionPtr& connection) = 0;

 protected:
  ~ConnectionHandler() = default;
};

// The connections of a store server: reads requests from them, writes what is queued for them, and closes those that
// stall, break the protocol or do not read.
//
// One event is handled as follows: read once, serve every complete request, which appends replies to the outputs of
// connections (changed()), and send each of these outputs with one write.
//
// Ownership: shared, since queued handlers keep it alive; they do nothing once the handler is destroyed or after
// stop(). The loop must outlive it. Threads: the loop's only. Errors: none thrown.
class StoreConnections : public std::enable_shared_from_this<StoreConnections> {
 public:
  StoreConnections(boost::asio::io_context& loop, const StoreServerOptions& options);

  // REQUIRES: the handler outlives all direct calls.
  void start(const std::shared_ptr<ConnectionHandler>& handler);
  void stop();

  // Serves the connection from now on; closes others if too many have not begun with a request.
  void add(const ConnectionPtr& connection);
  // Does so for a client that has been admitted. sent: what was read of it so far.
  void add_admitted(const ConnectionPtr& connection, std::string_view sent);
  // Null if there is none, or it has closed.
  ConnectionPtr find(ConnectionId id) const;
  std::size_t size() const { return connections_.size(); }
  std::size_t count_if(const std::function<bool(const StoreConnection&)>& predicate) const;

  // Something is queued for the connection, or its state has changed: it is sent, or closed, at the end of the event
  // that is handled. Outside of one call flush_soon() after that.
  void changed(const ConnectionPtr& connection);
  void flush_soon();
  // Closes it.
  void finish(const ConnectionPtr& connection);
  // Closes clients that have sent no complete request for too long, since others wait. Returns whether there were any.
  bool close_slow();

  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    if (const auto suppressed = limiter_.admit(Clock::now()))
      log_line(fmt::format(format, std::forward<Args>(args)...), *suppressed);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void watch(const ConnectionPtr& c);
  void wait_for_events();
  void serve_events();
  void event(const ConnectionPtr& c, std::uint32_t events);
  void read(const ConnectionPtr& c);
  bool receive(const ConnectionPtr& c, std::string_view bytes);
  void serve_requests(const ConnectionPtr& c);
  void record_validated(const ConnectionPtr& c);
  void limit_starting();

  void flush();
  void flush(const ConnectionPtr& c);
  void send(const ConnectionPtr& c);
  void set_interest(const ConnectionPtr& c);

  void reject(const ConnectionPtr& c, std::string_view reason);
  void set_deadline(const ConnectionPtr& c, std::optional<Clock::time_point> deadline);
  void arm_timer();
  void expire();
  static void log_line(const std::string& text, std::size_t suppressed);

  boost::asio::io_context& loop_;
  const StoreServerOptions options_;
  std::weak_ptr<ConnectionHandler> owner_;  // locked while events are handled
  ConnectionHandler* handler_ = nullptr;
  ReadySet ready_;
  Polling polling_;
  LogLimiter limiter_{{}};
  bool stopped_ = false;

  std::unordered_map<ConnectionId, ConnectionPtr> connections_;
  std::set<ConnectionId> starting_;  // those of connections_ that have not sent VALIDATE; by age
  std::vector<ConnectionPtr> changed_;
  bool flush_scheduled_ = false;
  boost::asio::steady_timer timer_;
  std::optional<Clock::time_point> timer_set_for_;
  std::set<std::pair<Clock::time_point, ConnectionId>> deadlines_;
  std::vector<char> buffer_;  // shared by all connections
  std::string text_;          // shared, too: the text that a channel has decrypted
};

}  // namespace ddprun::rendezvous
