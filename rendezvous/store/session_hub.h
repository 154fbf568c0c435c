#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Sessions: a store connection becomes one when its client sends SESSION (PROTOCOL.md). The server transports frames
// and reports when sessions open and close; the hub interprets the frames. Two interfaces, so that a hub can be tested
// without sockets, and the server without a hub.
namespace ddprun {

using SessionId = std::uint64_t;  // never reused by one server

// The two ends of a session's connection: numeric addresses without port; an IPv4 peer of a dual-stack socket is
// written as IPv4.
struct SessionPeer {
  std::string peer_address;  // the client's address
  std::uint16_t peer_port = 0;
  std::string local_address;  // the server's address, as the client dialled it
};

// The server's interface to a hub.
// Ownership: the server's; lives as long as the server. Threads: the server's event loop only.
// Errors: see send(); an id of a closed session is ignored. Neither function calls the hub before it returns.
class SessionSender {
 public:
  // Queues one frame of at most 8 MiB (longer: Errc::usage). A session whose client does not read is closed once its
  // queue is full; on_close() follows.
  virtual void send(SessionId session, std::string frame) = 0;
  // Closes the session after the queued frames have been sent, or a few seconds later if the client does not read;
  // on_close() follows. Frames that still arrive are dropped.
  virtual void close(SessionId session) = 0;
  // Sets or erases a key of the server's store, by its name on the wire. Does nothing without a store.
  virtual void set_key(std::string_view /*key*/, std::string_view /*value*/) {}
  virtual void erase_key(std::string_view /*key*/) {}

 protected:
  ~SessionSender() = default;
};

// The handler of a server's sessions: on_open once, on_frame any number of times, on_close once, for each session.
// Ownership: must outlive the server's use of it. Threads: called on the server's event loop.
// Errors: an Error thrown by on_frame closes that session with a log line. All three may call the SessionSender.
class SessionHub {
 public:
  // Called directly before the session's first frame.
  virtual void on_open(SessionId session, const SessionPeer& peer) = 0;
  virtual void on_frame(SessionId session, std::string frame) = 0;
  // The connection has closed, from either side. Not called for sessions still open when the server is destroyed.
  virtual void on_close(SessionId session) = 0;
  // Called when a client that has sent these bytes of a session's first frame is refused because it has no token.
  // Returns the frame that tells the client so, or nothing.
  virtual std::string refusal_of(std::string_view /*frame_head*/) { return {}; }
  // A client without a session is about to write a key (SET or COMPARE_SET). An Error thrown here closes its connection
  // instead. on_close() with this id follows when the connection closes.
  virtual void on_key(SessionId /*connection*/, const std::string& /*peer_address*/, std::string_view /*key*/,
                      std::string_view /*value*/) {}

 protected:
  ~SessionHub() = default;
};

}  // namespace ddprun
