#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ddprun/rendezvous/membership/session_protocol.h"
#include "tests/simulation/chance.h"
#include "tests/simulation/process.h"
#include "tests/simulation/virtual_time.h"

// TCP between hosts under virtual time.
//
// What can happen to bytes here is what can happen to them over TCP. Within one connection they keep their order, come
// once or not at all; a cut delays them until it heals. Order and count are lost only between connections: whoever
// gives up on one and dials again may be heard on the second before the first, says JOIN twice, and is reported closed
// on the first after it has spoken on the second. So there is no "deliver this frame twice" and no "swap these two":
// the schedule draws delays, cuts and giving up, and duplicates and reordering follow.
namespace ddprun::testing {

class Connection;
using ConnectionPtr = std::shared_ptr<Connection>;

// What listens at a port.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual ProcessPtr process() const = 0;
  // Sets the handlers of the server's side.
  virtual void accept(const ConnectionPtr& connection) = 0;
};

struct Host {
  std::string name;
  Time cut_until{};  // from and to all other hosts
  std::map<std::uint16_t, std::weak_ptr<Listener>> listeners;
};

struct Packet {
  std::string bytes;
  std::shared_ptr<const ServerFrame> frame;  // in place of bytes: one that many receive
  int place = 0;                             // of this receiver among them
  int job = -1;                              // that it is about
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum Side { client = 0, server = 1 };
  struct Handlers {
    std::function<void(const Packet&)> packet;
    std::function<void()> closed;  // by the other side; not after a close() of this one
  };

  // Dials. A port where nobody listens when the first packet arrives closes the client's side.
  static ConnectionPtr dial(VirtualTime& time, Chance& chance, Host& from, const ProcessPtr& process, Host& to,
                            std::uint16_t port, Handlers handlers);

  void set_handlers(Side side, Handlers handlers) { ends_[side].handlers = std::move(handlers); }
  void send(Side from, Packet packet);
  void close(Side side);
  // Closes, and takes back what the other side has not read yet (a reset: the network forgets the
  // bytes, and the server looks for it before it opens a session).
  void reset(Side side);
  bool open(Side side) const { return ends_[side].open; }
  const Host& host(Side side) const { return *ends_[side].host; }

  Connection(VirtualTime& time, Chance& chance) : time_(time), chance_(chance) {}

 private:
  struct End {
    Host* host = nullptr;
    ProcessPtr process;
    Handlers handlers;
    bool open = true;
    std::deque<std::optional<Packet>> under_way;  // to this end; none: the other side has closed
    Time latest{};
  };

  static Side other(Side side) { return side == client ? server : client; }
  Duration delay();
  void attach(Side side, const ProcessPtr& process);
  void transmit(Side to, std::optional<Packet> packet);
  void arrive(Side to);
  bool accepted();
  Time reachable_from() const;

  VirtualTime& time_;
  Chance& chance_;
  std::array<End, 2> ends_;
  std::uint16_t port_ = 0;
};

}  // namespace ddprun::testing
