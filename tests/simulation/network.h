#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/membership/session_protocol.h"
#include "tests/simulation/process.h"
#include "tests/simulation/virtual_time.h"
#include "tests/support/random_source.h"

// TCP between hosts under virtual time.
//
// The semantics are TCP's. Within a connection bytes arrive in order, once or not at all; a partition delays them until
// it ends. Duplicates and reordering occur only between connections: a client that gives up on a connection and redials
// may be received on the second before the first, sends JOIN twice, and is reported closed on the first after frames
// have arrived on the second. So there are no explicit duplicates and swaps: the schedule draws delays, partitions and
// timeouts, from which they follow.
namespace ddprun::testing {

class Connection;
using ConnectionPtr = std::shared_ptr<Connection>;

// A listener at a port.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual ProcessPtr process() const = 0;
  // Sets the handlers of the server's side.
  virtual void accept(const ConnectionPtr& connection) = 0;
};

struct Host {
  std::string name;
  Time cut_until{};  // partitioned from all other hosts until then
  std::map<std::uint16_t, std::weak_ptr<Listener>> listeners;
};

struct Packet {
  std::string bytes;
  std::shared_ptr<const ServerFrame> frame;  // a frame shared by several receivers, instead of bytes
  int index = 0;                             // index of this receiver among them
  int job = -1;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum Side { client = 0, server = 1 };
  struct Handlers {
    std::function<void(const Packet&)> packet;
    std::function<void()> closed;  // called when the other side closes; not after close() of this one
  };

  // Dials. The client's side closes if there is no listener when the first packet arrives.
  static ConnectionPtr dial(VirtualTime& time, RandomSource& random, Host& from, const ProcessPtr& process, Host& to,
                            std::uint16_t port, Handlers handlers);

  void set_handlers(Side side, Handlers handlers) { ends_[side].handlers = std::move(handlers); }
  void send(Side from, Packet packet);
  void close(Side side);
  // Closes, and discards the bytes that the other side has not read (a TCP reset; a server checks for it before it
  // opens a session).
  void reset(Side side);
  bool open(Side side) const { return ends_[side].open; }
  const Host& host(Side side) const { return *ends_[side].host; }

  Connection(VirtualTime& time, RandomSource& random) : time_(time), random_(random) {}

 private:
  struct End {
    Host* host = nullptr;
    ProcessPtr process;
    Handlers handlers;
    bool open = true;
    std::deque<std::optional<Packet>> in_flight;  // to this end; nullopt: the other side has closed
    Time latest{};
  };

  static Side other(Side side) { return side == client ? server : client; }
  Duration delay();
  void attach(Side side, const ProcessPtr& process);
  void transmit(Side to, std::optional<Packet> packet);
  void arrive(Side to);
  bool accepted();
  Time reachable_at() const;

  VirtualTime& time_;
  RandomSource& random_;
  std::array<End, 2> ends_;
  std::uint16_t port_ = 0;
};

}  // namespace ddprun::testing
