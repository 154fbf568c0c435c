#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "ddprun/common/environment.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// Where this agent can be asked by its owner, on this machine: a Unix socket in the runtime folder, there as long as
// this object is. One line in: "status", or "stop WHO". One line back. Who asked to stop keeps the connection, and sees
// its end when the agent ends. On the loop of the io_context; the handlers are called from there.
class ControlSocket {
 public:
  struct Handlers {
    std::function<std::string()> status;  // the answer to either, without its newline
    std::function<void(const std::string& who)> stop;
  };

  // Best effort: where no socket can be made, a line at level debug says so.
  ControlSocket(boost::asio::io_context& loop, const Environment& environment, Handlers handlers);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
