#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "common/environment.h"
#include "common/unique_fd.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// The Unix socket in the runtime folder over which ddprun status and ddprun stop of the same user reach this agent; the
// kernel reports the user of a connection, and those of other users except root are closed (SO_PEERCRED in unix(7)). A
// request is one line, "status", "view", "end", "stop REQUESTER", "signal RANK NUMBER REQUESTER", "attach RANK" or
// "store PORT"; so is the answer. After "stop" the connection stays open until the agent exits; "end" is answered then,
// with the text given to announce_end(); after "attach" and "store" the connection belongs to the handler.
//
// Ownership: owns the socket, which the destructor removes; the loop must outlive it. Threads: single-threaded on the
// loop, which calls the handlers. Errors: none thrown; an invalid request closes its connection.
class ControlSocket {
 public:
  using SignalReply = std::function<void(const std::string& problem)>;

  struct Handlers {
    std::function<std::string()> status;  // the answer to "status" and "stop", without a newline
    std::function<std::string()> view;    // the answer to "view", without a newline
    std::function<void(const std::string& requester)> stop;
    // Sends the worker of a rank a signal. reply gets the answer, at once or later: empty, or why the signal was not
    // sent. It may be called after this object was destroyed.
    std::function<void(int rank, int signal_number, const std::string& requester, SignalReply reply)> signal;
    std::function<void(int rank, UniqueFd connection)> attach;
    // A worker of this host wants to use the workers' store that listens at this port (local_socket.h); sent: what
    // followed the request.
    std::function<void(std::uint16_t port, UniqueFd connection, const std::string& sent)> store;
  };

  // If the socket cannot be created, a warning gives the reason and the agent runs without it.
  ControlSocket(boost::asio::io_context& loop, const Environment& environment, Handlers handlers);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  // Sends the answer to clients that asked for the end, without a newline, as far as their connections accept it.
  void announce_end(const std::string& answer);

  // The path is empty when there is no socket.
  const std::filesystem::path& path() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
