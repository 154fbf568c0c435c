#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/epoll.h>

#include "common/unique_fd.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/store/store_state.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/trust/tls_channel.h"

namespace ddprun::rendezvous {

// A client's connection at the store server: its socket, what it has sent and has no answer yet, and the replies that
// are queued for it. The server decides what its requests do and when it is closed.
//
// Ownership: owns the socket and the channel. Threads: the server's loop. Errors: each method names its own.
struct StoreConnection {
  using Clock = std::chrono::steady_clock;
  enum class Sending { done, blocked, broken };

  StoreConnection(ConnectionId number, UniqueFd fd);

  std::string peer_text() const;
  std::size_t unsent() const { return output.size() + sealed.size() - sent; }
  // Flow control: no further requests are read from a client that does not read its replies.
  bool paused() const;
  // Returns whether the client holds a descriptor and neither begins nor ends a request, for longer than the bound.
  bool is_slow(Clock::duration bound) const;
  // Returns when the client has to have done what it is expected to do next; nullopt: nothing is expected.
  std::optional<Clock::time_point> next_deadline(const StoreServerOptions& options) const;

  // Passes received bytes to the parser. text: memory for what the channel decrypts. Throws Errc::connection_lost if
  // the client has closed the channel, others if it violates its protocol.
  void feed(std::string_view bytes, std::string& text);
  // Sends replies until none is left or the socket's buffer is full. Throws what the channel does.
  Sending send_replies();
  // Queues a frame of a session, or sends it at once if it is large and nothing is queued.
  void queue_frame(std::string frame);

  const ConnectionId id;
  UniqueFd socket;
  const SocketAddress peer;
  RequestParser parser;
  std::string output;                   // replies
  std::string sealed;                   // replies that the channel has encrypted
  std::size_t sent = 0;                 // bytes of outgoing()
  bool by_token = false;                // the client has proved that it knows the token
  std::unique_ptr<TlsChannel> channel;  // null: clear text
  bool open = true;
  bool starting = true;  // the client has not sent a complete VALIDATE
  bool writing = false;  // the socket buffer is full: waiting for EPOLLOUT
  std::uint32_t interest = EPOLLIN;
  bool dirty = false;  // listed by the server as one with replies to send
  bool session = false;
  bool reported = false;     // the hub knows it, by on_key()
  bool aware = false;        // the client has asked about the server's end since it was announced
  bool peer_closed = false;  // the client has closed; requests that it sent before may still be buffered
  bool closing = false;      // close once the output has been sent
  const Clock::time_point began;
  Clock::time_point progress;  // the last byte in or out
  std::optional<Clock::time_point> deadline;

 private:
  // Returns the bytes to send as they are.
  std::string& outgoing() { return channel ? sealed : output; }
  void seal();
};

}  // namespace ddprun::rendezvous
