#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace boost::asio {
class io_context;
}

namespace ddprun {

// Connects to the workers' store of a round as this node's workers do, because a worker that cannot reach it says
// nothing until its own timeout. The listener gets the problem, once, if no connection is made within a few seconds.
//
// Ownership: the event loop must outlive it. The destructor ends the attempt. Threads: the loop's. Errors: none thrown.
class StoreProbe {
 public:
  using Listener = std::function<void(const std::string& problem)>;

  StoreProbe(boost::asio::io_context& loop, const std::string& host, std::uint16_t port, Listener unreachable);
  ~StoreProbe();
  StoreProbe(const StoreProbe&) = delete;
  StoreProbe& operator=(const StoreProbe&) = delete;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
