#pragma once

#include <cstdint>
#include <string>

// Sessions: what a store connection becomes when its client sends SESSION (see PROTOCOL.md). The server moves whole
// frames and reports beginnings and ends; what the frames mean is the hub's business. Two narrow interfaces so that a
// hub can be tested without a socket, and the server without a hub.
namespace ddprun {

using SessionId = std::uint64_t;  // never used twice by one server

// The two ends of a session's connection: numeric addresses without port, an IPv4 peer of a dual-stack socket written
// as IPv4.
struct SessionPeer {
  std::string peer_address;  // the client
  std::uint16_t peer_port = 0;
  std::string local_address;  // the address of ours that the client reached
};

// What a hub may do with sessions. Implemented by the server; call it on the server's event loop only. Neither function
// calls back into the hub before it returns, and an id that has ended is ignored.
class SessionSender {
 public:
  // Queues one frame of at most 8 MiB (longer: Errc::usage). A client that does not read is closed once its queue is
  // full; on_close() tells.
  virtual void send(SessionId session, std::string frame) = 0;
  // Ends the session after what was sent before has left, or a few seconds later if the client does not read;
  // on_close() follows. Frames that still arrive are dropped.
  virtual void close(SessionId session) = 0;

 protected:
  ~SessionSender() = default;
};

// What a hub hears, on the server's event loop: on_open once, on_frame any number of times, on_close once.
// A hub may call its SessionSender from all three. An Error that on_frame throws closes that session, with a log line.
class SessionHub {
 public:
  // Directly before the session's first frame.
  virtual void on_open(SessionId session, const SessionPeer& peer) = 0;
  virtual void on_frame(SessionId session, std::string frame) = 0;
  // The connection has ended, whichever side began it. Not called for sessions that live when the server is destroyed.
  virtual void on_close(SessionId session) = 0;

 protected:
  ~SessionHub() = default;
};

}  // namespace ddprun
