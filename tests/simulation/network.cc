#include "tests/simulation/network.h"

#include <algorithm>
#include <utility>

namespace ddprun::testing {

using namespace std::chrono_literals;

ConnectionPtr Connection::dial(VirtualTime& time, RandomSource& random, Host& from, const ProcessPtr& process, Host& to,
                               std::uint16_t port, Handlers handlers) {
  const auto connection = std::make_shared<Connection>(time, random);
  connection->ends_[client].host = &from;
  connection->ends_[server].host = &to;
  connection->port_ = port;
  connection->set_handlers(client, std::move(handlers));
  connection->attach(client, process);
  return connection;
}

void Connection::attach(Side side, const ProcessPtr& process) {
  ends_[side].process = process;
  process->connections_.emplace_back(weak_from_this(), side);
}

void Connection::send(Side from, Packet packet) {
  if (ends_[from].open) transmit(other(from), std::move(packet));
}

void Connection::close(Side side) {
  if (std::exchange(ends_[side].open, false)) transmit(other(side), std::nullopt);
}

void Connection::reset(Side side) {
  ends_[other(side)].in_flight.clear();
  close(side);
}

// The delay is mostly short, sometimes longer, but never so long that a live peer counts as lost.
Duration Connection::delay() {
  return random_.percent(3) ? random_.duration(0us, 1500ms) : random_.duration(50us, 3ms);
}

void Connection::transmit(Side to, std::optional<Packet> packet) {
  End& end = ends_[to];
  if (!end.open) return;
  end.in_flight.push_back(std::move(packet));
  end.latest = std::max(end.latest, time_.now() + delay());
  time_.at(end.latest, [self = shared_from_this(), to] { self->arrive(to); });
}

Time Connection::reachable_at() const {
  const Host *a = ends_[client].host, *b = ends_[server].host;
  return a == b ? time_.now() : std::max({time_.now(), a->cut_until, b->cut_until});
}

// There is one call per packet; it delivers them in the order of sending.
void Connection::arrive(Side to) {
  End& end = ends_[to];
  const auto again_at = [&](Time when) { time_.at(when, [self = shared_from_this(), to] { self->arrive(to); }); };
  if (const Time reachable = reachable_at(); reachable > time_.now()) return again_at(reachable + delay());
  if (!end.open) return;
  if (!end.process && !accepted()) return;
  if (end.process->lost()) return;
  if (!end.process->alive()) return close(to);
  if (const Time from = end.process->runnable_at(); from > time_.now()) return again_at(from);
  if (end.in_flight.empty()) return;  // withdrawn by reset()
  const auto packet = std::move(end.in_flight.front());
  end.in_flight.pop_front();
  if (packet) return end.handlers.packet(*packet);
  end.open = false;
  end.handlers.closed();
}

bool Connection::accepted() {
  const Host& host = *ends_[server].host;
  const auto entry = host.listeners.find(port_);
  const auto listener = entry == host.listeners.end() ? nullptr : entry->second.lock();
  if (listener && listener->process()->lost()) return false;
  if (!listener || !listener->process()->alive()) {
    close(server);
    return false;
  }
  attach(server, listener->process());
  listener->accept(shared_from_this());
  return true;
}

}  // namespace ddprun::testing
