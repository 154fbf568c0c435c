#include "rendezvous/store/admission_gate.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "rendezvous/store/tcp_socket.h"

namespace ddprun::rendezvous {

AdmissionGate::AdmissionGate(boost::asio::io_context& loop, std::shared_ptr<const Admission> admission,
                             Handlers handlers)
    : admission_(std::move(admission)),
      handlers_(std::move(handlers)),
      clients_(*admission_, {.ends_of = [this](Id id) { return ends_of(id); },
                             .owner_of = [this](const SocketEnds& client) { return owners_.find(client); },
                             .is_of_job = [this](std::uint64_t inode) { return job_.hold(inode); }}),
      ready_(loop),
      timer_(loop) {}

void AdmissionGate::stop() {
  stopped_ = true;
  timer_.cancel();
  ready_.close();
  for (auto& [id, client] : sockets_) client.socket.reset();
}

SocketEnds AdmissionGate::ends_of(Id id) const {
  const auto& client = sockets_.at(id);
  auto own = describe(client.peer), peer = local_address(client.socket.get());
  return {.own = {std::move(own.address), own.port}, .peer = {std::move(peer.address), peer.port}};
}

bool AdmissionGate::has_room() {
  if (clients_.pending() < admission_->max_pending) return true;
  const auto oldest = *clients_.oldest_pending();
  if (sockets_.at(oldest).began + admission_->crowded <= Clock::now()) {
    execute(clients_.expired(oldest));
    return true;
  }
  full_ = true;
  arm_timer();
  return false;
}

void AdmissionGate::offer_room() {
  if (!stopped_ && clients_.pending() < admission_->max_pending && std::exchange(full_, false)) handlers_.room();
}

// The first bytes have usually arrived with the connection; in that case it is never watched.
void AdmissionGate::add(Id id, UniqueFd socket, const sockaddr_storage& peer) {
  sockets_.emplace(id, Client{.socket = std::move(socket), .peer = peer, .began = Clock::now()});
  clients_.opened(id);
  if (!read(id) && sockets_.contains(id)) {
    auto& client = sockets_.at(id);
    ready_.add(client.socket.get(), id, EPOLLIN);
    client.watched = true;
  }
  arm_timer();
}

bool AdmissionGate::close_older_than(std::chrono::milliseconds age) {
  const auto limit = Clock::now() - age;
  std::vector<Id> old;
  for (const auto& [id, client] : sockets_)
    if (client.began <= limit) old.push_back(id);
  for (const auto id : old) execute(clients_.expired(id));
  return !old.empty();
}

void AdmissionGate::agent_opened(Id agent, const std::string& address) {
  execute(clients_.agent_opened(agent, address));
}

void AdmissionGate::answered(Id agent, std::int64_t answer) {
  execute(clients_.answered(agent, answer));
}

void AdmissionGate::closed(Id id) {
  clients_.closed(id);
}

void AdmissionGate::wait_for_events() {
  ready_.async_wait([self = shared_from_this()] {
    if (self->stopped_) return;
    self->serve_events();
    if (!self->stopped_) self->wait_for_events();
  });
}

void AdmissionGate::serve_events() {
  for (const auto& event : ready_.take()) {
    if (stopped_) return;
    if (sockets_.contains(event.data.u64)) read(event.data.u64);
  }
}

bool AdmissionGate::read(Id id) {
  std::array<char, ServerHandshake::max_bytes> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): recv fills it
  const auto room = std::min(bytes.size(), clients_.is_open(id) ? clients_.capacity(id) : 0);
  const auto got = room == 0 ? 0 : ::recv(sockets_.at(id).socket.get(), bytes.data(), room, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got > 0) {
    execute(clients_.received(id, {bytes.data(), static_cast<std::size_t>(got)}));
    offer_room();
    return !sockets_.contains(id) || clients_.is_held(id);
  }
  clients_.closed(id);
  take(id);
  offer_room();
  return true;
}

void AdmissionGate::execute(ClientAdmission::Actions actions) {
  for (auto& action : actions)
    if (!stopped_) std::visit([this](auto& one) { execute(one); }, action);
}

// The buffer of a new connection has space for it.
void AdmissionGate::execute(ClientAdmission::Send& action) {
  ::send(sockets_.at(action.to).socket.get(), action.bytes.data(), action.bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The end of a held connection is noticed, and what the client sends is left in the socket.
void AdmissionGate::execute(ClientAdmission::Hold& action) {
  auto& client = sockets_.at(action.id);
  if (std::exchange(client.watched, true))
    ready_.change(client.socket.get(), action.id, EPOLLRDHUP);
  else
    ready_.add(client.socket.get(), action.id, EPOLLRDHUP);
  offer_room();
}

void AdmissionGate::execute(ClientAdmission::Ask& action) {
  handlers_.ask(action.agent, action.question);
}

void AdmissionGate::execute(ClientAdmission::Admit& action) {
  auto client = take(action.id);
  handlers_.admit({.id = action.id,
                   .socket = std::move(client.socket),
                   .by_token = action.by_token,
                   .channel = std::move(action.channel),
                   .rest = std::move(action.rest)});
  offer_room();
}

void AdmissionGate::execute(ClientAdmission::Refuse& action) {
  log_refusal(action.id, action.reason);
  const auto client = take(action.id);
  const auto answer = handlers_.explain(action.rest);
  if (!answer.empty()) ::send(client.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  offer_room();
}

void AdmissionGate::log_refusal(Id id, const std::string& reason) {
  const auto suppressed = limiter_.admit(Clock::now());
  if (!suppressed) return;
  const auto peer = describe(sockets_.at(id).peer);
  log::warn("store: refused a client at {}: {}{}", format_host_port(peer.address, peer.port), reason,
            *suppressed > 0 ? fmt::format(" ({} others refused since the last such line)", *suppressed) : "");
}

AdmissionGate::Client AdmissionGate::take(Id id) {
  auto client = std::move(sockets_.extract(id).mapped());
  if (client.watched) ready_.remove(client.socket.get());
  return client;
}

std::optional<AdmissionGate::Clock::time_point> AdmissionGate::next_expiry() const {
  if (sockets_.empty()) return std::nullopt;
  auto next = sockets_.begin()->second.began + admission_->timeout;
  if (const auto oldest = full_ ? clients_.oldest_pending() : std::nullopt)
    next = std::min(next, sockets_.at(*oldest).began + admission_->crowded);
  return next;
}

// A timer that is set for an earlier time stays as it is: its handler determines what is due next.
void AdmissionGate::arm_timer() {
  const auto next = next_expiry();
  if (!next || (timer_set_for_ && *timer_set_for_ <= *next)) return;
  timer_set_for_ = next;
  timer_.expires_at(*next);
  timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
    if (error || self->stopped_) return;
    self->timer_set_for_.reset();
    self->expire();
    if (!self->stopped_) self->arm_timer();
  });
}

void AdmissionGate::expire() {
  const auto now = Clock::now();
  while (!stopped_ && !sockets_.empty() && sockets_.begin()->second.began + admission_->timeout <= now)
    execute(clients_.expired(sockets_.begin()->first));
  if (!stopped_ && full_ && has_room() && std::exchange(full_, false)) handlers_.room();
}

}  // namespace ddprun::rendezvous
