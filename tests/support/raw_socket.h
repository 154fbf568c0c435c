#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>

#include "common/deadline.h"
#include "common/error.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/tcp_socket.h"

namespace ddprun::testing {

// A connection to a store server through which a test sends any bytes.
class RawSocket {
 public:
  explicit RawSocket(std::uint16_t port) : fd_(rendezvous::connect_once("127.0.0.1", port, soon())) {}

  explicit RawSocket(UniqueFd connected) : fd_(std::move(connected)) {}

  // Connects and sends VALIDATE.
  static RawSocket validated(std::uint16_t port) {
    RawSocket socket(port);
    socket.send(rendezvous::encode(rendezvous::ValidateRequest{}));
    return socket;
  }

  void send(std::string_view bytes) { rendezvous::send_all(fd_.get(), bytes, soon()); }
  void send(const rendezvous::Request& request) { send(rendezvous::encode(request)); }

  // Receives exactly size bytes; throws when the connection ends before.
  std::string receive(std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t done = 0; done < size;)
      done += rendezvous::receive_some(fd_.get(), bytes.data() + done, size - done, soon());
    return bytes;
  }
  // Makes a round trip: all requests sent before have been applied.
  void settle() {
    send(rendezvous::PingRequest{77});
    if (receive(4) != std::string("M\0\0\0", 4)) throw Error(Errc::protocol, "no answer to PING");
  }
  // Returns true once the server has closed, whatever it sent before; false if it has not within 20 s.
  bool closed_by_server() {
    char rest[4096];
    try {
      for (;;) rendezvous::receive_some(fd_.get(), rest, sizeof rest, soon());
    } catch (const Error& e) {
      return e.code() == Errc::connection_lost;
    }
  }
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  static Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

  UniqueFd fd_;
};

}  // namespace ddprun::testing
