#pragma once

#include <memory>
#include <string>

#include "ddprun/rendezvous/store/store_server.h"

namespace ddprun {

// A store server on a thread of its own, for a process that has no event loop: a worker of rank 0, ddprun-store, a
// test. Listens once constructed (Errc::io when it cannot); the destructor ends every connection and joins the thread,
// which has all signals blocked.
class StoreServerThread {
 public:
  explicit StoreServerThread(const StoreServerOptions& options = {});
  ~StoreServerThread();
  StoreServerThread(const StoreServerThread&) = delete;
  StoreServerThread& operator=(const StoreServerThread&) = delete;

  std::uint16_t port() const { return port_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::uint16_t port_ = 0;
  std::string endpoint_;
};

}  // namespace ddprun
