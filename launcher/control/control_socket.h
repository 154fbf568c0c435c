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

// A Unix socket in the runtime folder on which the owner of this agent can ask it for its status or to stop. The
// request is one line, "status" or "stop REQUESTER"; so is the answer. After "stop" the connection stays open until the
// agent exits.
//
// The socket exists as long as this object. Used on the loop of the io_context; the handlers are called from there.
class ControlSocket {
 public:
  struct Handlers {
    std::function<std::string()> status;  // the answer to both requests, without a newline
    std::function<void(const std::string& requester)> stop;
  };

  // If the socket cannot be created, this is logged at level debug and the agent runs without it.
  ControlSocket(boost::asio::io_context& loop, const Environment& environment, Handlers handlers);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
