#pragma once

#include <memory>
#include <string>

#include "common/deadline.h"
#include "rendezvous/store/store_server.h"

namespace ddprun {

// A store server with its own thread, for a process without an event loop: worker rank 0, a test.
// Ownership: the destructor closes every connection and joins the thread.
// Threads: not thread-safe, apart from the constants port() and endpoint() and where a function says so. Its thread
// blocks all signals.
// Errors: the constructor throws Errc::io if it cannot listen.
class StoreServerThread {
 public:
  // Listens when it returns.
  explicit StoreServerThread(const StoreServerOptions& options = {});
  ~StoreServerThread();
  StoreServerThread(const StoreServerThread&) = delete;
  StoreServerThread& operator=(const StoreServerThread&) = delete;

  // The TCP port, and "HOST:PORT", on which the server listens.
  std::uint16_t port() const { return port_; }
  const std::string& endpoint() const { return endpoint_; }

  // This process will end in order, or no longer needs the server: its clients learn that (Store::end_announced()), and
  // the server closes by itself once no client is connected. Call it once; the two functions below REQUIRE it.
  void announce_end();
  // Waits until every client has learnt it or has closed; returns false at the deadline. Any thread may call it.
  bool await_end_known(Deadline deadline);
  // Waits until no client is connected; returns false at the deadline. Any thread may call it.
  bool await_unused(Deadline deadline);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::uint16_t port_ = 0;
  std::string endpoint_;
};

}  // namespace ddprun
