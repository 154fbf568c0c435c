#include "rendezvous/store/store_server.h"

#include <array>
#include <cerrno>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "common/error.h"
#include "common/log.h"
#include "rendezvous/store/admission_gate.h"
#include "rendezvous/store/store_acceptor.h"
#include "rendezvous/store/store_connection.h"
#include "rendezvous/store/store_connections.h"
#include "rendezvous/store/store_state.h"
#include "rendezvous/store/tcp_socket.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using rendezvous::ConnectionId;
using rendezvous::ConnectionPtr;
using rendezvous::SessionRequest;

constexpr ConnectionId server_connection = 0;  // for requests of the server itself; clients count from 1

}  // namespace

// Executes the requests of the connections: those to the store, to the hub of sessions and to the gate that admits
// clients.
class StoreServer::Impl final : public std::enable_shared_from_this<Impl>,
                                public SessionSender,
                                public rendezvous::ConnectionHandler {
 public:
  Impl(asio::io_context& loop, const StoreServerOptions& options);

  void start() {
    if (options_.admission) open_gate();
    acceptor_->start(accept_handlers());
    connections_->start(shared_from_this());
  }
  void stop();

  std::string endpoint() const { return acceptor_->endpoint(); }
  std::uint16_t port() const { return acceptor_->address().port; }
  std::size_t connections() const { return connections_->size(); }
  void erase_if(const std::function<bool(std::string_view)>& predicate) { state_.erase_if(predicate); }
  std::optional<std::string> find(std::string_view key) const { return state_.find(key); }
  std::map<std::string, std::uint64_t> operations() const;
  void announce_end(std::function<void()> on_change);
  std::size_t unaware() const;
  void on_set(std::string part, std::function<void()> listener) {
    awaited_part_ = std::move(part);
    on_set_ = std::move(listener);
  }
  void set_hub(SessionHub* hub) { hub_ = hub; }
  void adopt(UniqueFd client, std::string_view sent) {
    connections_->add_admitted(std::make_shared<rendezvous::StoreConnection>(next_id_++, std::move(client)), sent);
  }
  void on_accept_failure(std::chrono::milliseconds bound, std::function<void(const Error&)> listener) {
    acceptor_->on_failure(bound, std::move(listener));
  }

  void send(SessionId session, std::string frame) override;
  void close(SessionId session) override;
  void set_key(std::string_view key, std::string_view value) override;
  void erase_key(std::string_view key) override;

 private:
  rendezvous::StoreAcceptor::Handlers accept_handlers();
  void accepted(UniqueFd fd, const sockaddr_storage& peer);
  bool close_slow_clients();

  void open_gate();
  void admit(rendezvous::AdmissionGate::Admitted client);
  void ask(ConnectionId agent, const std::string& question);
  std::string refusal_of(std::string_view sent) const;
  void handle_confirm(const ConnectionPtr& c, const rendezvous::ConfirmRequest& request);

  void serve(const ConnectionPtr& c, const rendezvous::Request& request) override;
  void closed(const ConnectionPtr& c) override;
  void handle(const ConnectionPtr& c, const rendezvous::Request& request);
  void handle_session(const ConnectionPtr& c, const rendezvous::Request& request);
  void report_set(std::string_view key);
  void report_key(const ConnectionPtr& c, std::string_view key, std::string_view value);
  void record_end_known(const ConnectionPtr& c, const rendezvous::Request& request);
  void deliver();
  ConnectionPtr open_session(SessionId session) const;

  asio::io_context& loop_;
  const StoreServerOptions options_;
  const std::shared_ptr<rendezvous::StoreAcceptor> acceptor_;
  const std::shared_ptr<rendezvous::StoreConnections> connections_;
  bool stopped_ = false;
  std::function<void()> on_end_change_;  // set once the end is announced
  std::string awaited_part_;             // of the keys whose change on_set_ is told of
  std::function<void()> on_set_;
  bool set_reported_ = false;  // on_set_ is called soon: once for all keys that are set meanwhile
  SessionHub* hub_ = nullptr;
  std::shared_ptr<rendezvous::AdmissionGate> gate_;  // null: everybody is admitted

  rendezvous::StoreState state_;
  ConnectionId next_id_ = 1;
  std::array<std::uint64_t, std::variant_size_v<rendezvous::Request>> operations_{};  // by index of the variant
  std::vector<rendezvous::Reply> replies_;
};

StoreServer::Impl::Impl(asio::io_context& loop, const StoreServerOptions& options)
    : loop_(loop),
      options_(options),
      acceptor_(std::make_shared<rendezvous::StoreAcceptor>(loop, options.host, options.port)),
      connections_(std::make_shared<rendezvous::StoreConnections>(loop, options)) {}

void StoreServer::Impl::stop() {
  stopped_ = true;
  hub_ = nullptr;
  acceptor_->stop();
  if (gate_) gate_->stop();
  connections_->stop();
}

// Accepting

// They keep this object alive while they run.
rendezvous::StoreAcceptor::Handlers StoreServer::Impl::accept_handlers() {
  const auto weak = weak_from_this();
  return {.accepted =
              [weak](UniqueFd fd, const sockaddr_storage& peer) {
                if (const auto self = weak.lock()) self->accepted(std::move(fd), peer);
              },
          .has_room =
              [weak] {
                const auto self = weak.lock();
                return self && (!self->gate_ || self->gate_->has_room());  // the gate resumes the acceptor
              },
          .free_some =
              [weak] {
                const auto self = weak.lock();
                return self && self->close_slow_clients();
              },
          .count =
              [weak] {
                const auto self = weak.lock();
                return self ? self->connections_->size() : 0;
              },
          .warn =
              [weak](const std::string& text) {
                if (const auto self = weak.lock()) self->connections_->warn("{}", text);
              }};
}

// Returns whether there was such a client.
bool StoreServer::Impl::close_slow_clients() {
  const bool served = connections_->close_slow();
  const bool pending = gate_ && gate_->close_older_than(options_.slow_start);
  return served || pending;
}

void StoreServer::Impl::accepted(UniqueFd fd, const sockaddr_storage& peer) {
  if (gate_) return gate_->add(next_id_++, std::move(fd), peer);
  rendezvous::set_connection_options(fd.get());
  connections_->add(std::make_shared<rendezvous::StoreConnection>(next_id_++, std::move(fd)));
}

// Admission

void StoreServer::Impl::open_gate() {
  const auto with = [weak = weak_from_this()](auto action) {
    if (const auto self = weak.lock(); self && !self->stopped_) action(*self);
  };
  gate_ = std::make_shared<rendezvous::AdmissionGate>(
      loop_, options_.admission,
      rendezvous::AdmissionGate::Handlers{
          .admit = [with](auto client) { with([&](Impl& self) { self.admit(std::move(client)); }); },
          .ask = [with](auto agent, const auto& question) { with([&](Impl& self) { self.ask(agent, question); }); },
          .explain =
              [with](std::string_view sent) {
                std::string text;
                with([&](const Impl& self) { text = self.refusal_of(sent); });
                return text;
              },
          .room = [with] { with([](Impl& self) { self.acceptor_->resume(); }); }});
  gate_->start();
  acceptor_->defer();
}

void StoreServer::Impl::admit(rendezvous::AdmissionGate::Admitted client) {
  rendezvous::set_connection_options(client.socket.get());
  const auto c = std::make_shared<rendezvous::StoreConnection>(client.id, std::move(client.socket));
  c->by_token = client.by_token;
  c->channel = std::move(client.channel);
  log::debug("store: admitted {} by {}", c->peer_text(), c->by_token ? "its token" : "the owner of its socket");
  connections_->add_admitted(c, client.rest);
}

void StoreServer::Impl::ask(ConnectionId agent, const std::string& question) {
  const auto c = connections_->find(agent);
  if (!c) return;
  rendezvous::put_vec(c->output, question);
  connections_->changed(c);
  connections_->flush_soon();
}

// An agent or a tool that has no token learns why it is refused. Its bytes may be cut anywhere.
std::string StoreServer::Impl::refusal_of(std::string_view sent) const {
  constexpr std::size_t validate_bytes = 5, head_bytes = validate_bytes + 1 + sizeof(std::uint64_t);
  const auto session = static_cast<char>(rendezvous::Op::session);
  if (!hub_ || sent.size() < head_bytes || sent[validate_bytes] != session) return {};
  const auto frame = hub_->refusal_of(sent.substr(head_bytes));
  std::string bytes;
  if (!frame.empty()) rendezvous::put_vec(bytes, frame);
  return bytes;
}

void StoreServer::Impl::handle_confirm(const ConnectionPtr& c, const rendezvous::ConfirmRequest& request) {
  if (!gate_ || !c->by_token) throw Error(Errc::protocol, "CONFIRM from a client without the token");
  if (request.answer == 0)
    gate_->agent_opened(c->id, c->peer.address);
  else
    gate_->answered(c->id, request.answer);
}

// Requests

void StoreServer::Impl::serve(const ConnectionPtr& c, const rendezvous::Request& request) {
  if (c->session || std::holds_alternative<SessionRequest>(request))
    handle_session(c, request);
  else if (const auto* confirm = std::get_if<rendezvous::ConfirmRequest>(&request))
    handle_confirm(c, *confirm);
  else
    handle(c, request);
}

void StoreServer::Impl::handle(const ConnectionPtr& c, const rendezvous::Request& request) {
  if (const auto* set = std::get_if<rendezvous::SetRequest>(&request)) report_key(c, set->key, set->value);
  if (const auto* set = std::get_if<rendezvous::CompareSetRequest>(&request)) report_key(c, set->key, set->desired);
  ++operations_[request.index()];
  state_.apply(c->id, request, replies_);
  deliver();
  if (on_end_change_) record_end_known(c, request);
  if (const auto* set = std::get_if<rendezvous::SetRequest>(&request); set && on_set_) report_set(set->key);
}

std::map<std::string, std::uint64_t> StoreServer::Impl::operations() const {
  std::map<std::string, std::uint64_t> counted;
  for (std::size_t i = 0; i < operations_.size(); ++i)
    if (operations_[i] > 0) counted[std::string(rendezvous::request_names[i])] = operations_[i];
  return counted;
}

void StoreServer::Impl::record_end_known(const ConnectionPtr& c, const rendezvous::Request& request) {
  const auto* const check = std::get_if<rendezvous::CheckRequest>(&request);
  if (!check || check->keys.size() != 1 || check->keys[0] != rendezvous::ending_key) return;
  c->aware = true;
  asio::post(loop_, on_end_change_);
}

void StoreServer::Impl::report_set(std::string_view key) {
  if (key.find(awaited_part_) == std::string_view::npos || std::exchange(set_reported_, true)) return;
  asio::post(loop_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->stopped_) return;
    self->set_reported_ = false;
    self->on_set_();
  });
}

void StoreServer::Impl::report_key(const ConnectionPtr& c, std::string_view key, std::string_view value) {
  if (!hub_) return;
  c->reported = true;
  hub_->on_key(c->id, c->peer.address, key, value);
}

void StoreServer::Impl::handle_session(const ConnectionPtr& c, const rendezvous::Request& request) {
  const auto* frame = std::get_if<SessionRequest>(&request);
  if (!frame) throw Error(Errc::protocol, "a request other than SESSION on a session");
  if (!hub_) throw Error(Errc::protocol, "SESSION, but this server has no sessions");
  const std::string bytes(frame->frame);
  if (!c->session) {
    if (c->peer_closed) return connections_->finish(c);  // the client has given up this attempt
    if (state_.is_waiting(c->id)) throw Error(Errc::protocol, "SESSION while a wait is pending");
    c->session = true;
    hub_->on_open(c->id, {c->peer.address, c->peer.port, rendezvous::local_address(c->socket.get()).address});
  }
  if (hub_) hub_->on_frame(c->id, bytes);
}

// Moves the replies of the state machine to the outputs of their connections.
void StoreServer::Impl::deliver() {
  for (auto& reply : replies_) {
    const auto c = connections_->find(reply.to);
    if (!c) continue;
    if (c->output.empty())
      c->output = std::move(reply.bytes);
    else
      c->output.append(reply.bytes);
    connections_->changed(c);
  }
  replies_.clear();
}

void StoreServer::Impl::closed(const ConnectionPtr& c) {
  if (gate_) gate_->closed(c->id);
  state_.close(c->id, replies_);
  deliver();
  if ((c->session || c->reported) && hub_) hub_->on_close(c->id);
  if (on_end_change_) asio::post(loop_, on_end_change_);
}

// Sessions

// Returns null if there is none, or it closes.
ConnectionPtr StoreServer::Impl::open_session(SessionId session) const {
  auto c = connections_->find(session);
  return c && c->session && !c->closing ? c : nullptr;
}

void StoreServer::Impl::send(SessionId session, std::string frame) {
  if (frame.size() > rendezvous::max_value_bytes)
    throw make_error(Errc::usage, "a session frame of {} bytes (at most {})", frame.size(),
                     rendezvous::max_value_bytes);
  const auto c = open_session(session);
  if (!c) return;
  c->queue_frame(std::move(frame));
  connections_->changed(c);
  connections_->flush_soon();
}

void StoreServer::Impl::close(SessionId session) {
  const auto c = open_session(session);
  if (!c) return;
  c->closing = true;
  c->progress = std::chrono::steady_clock::now();
  connections_->changed(c);
  connections_->flush_soon();
}

void StoreServer::Impl::set_key(std::string_view key, std::string_view value) {
  state_.apply(server_connection, rendezvous::SetRequest{key, value}, replies_);
  deliver();
  connections_->flush_soon();
}

void StoreServer::Impl::erase_key(std::string_view key) {
  state_.erase_if([key](std::string_view name) { return name == key; });
}

// The announced end

void StoreServer::Impl::announce_end(std::function<void()> on_change) {
  state_.announce_end();
  on_end_change_ = std::move(on_change);
}

std::size_t StoreServer::Impl::unaware() const {
  return connections_->count_if([](const auto& connection) { return !connection.aware; });
}

StoreServer::StoreServer(asio::io_context& loop, const StoreServerOptions& options)
    : impl_(std::make_shared<Impl>(loop, options)) {
  impl_->start();
}
StoreServer::~StoreServer() {
  impl_->stop();
}
std::uint16_t StoreServer::port() const {
  return impl_->port();
}
std::string StoreServer::endpoint() const {
  return impl_->endpoint();
}
std::size_t StoreServer::connections() const {
  return impl_->connections();
}
void StoreServer::on_accept_failure(std::chrono::milliseconds bound, std::function<void(const Error&)> listener) {
  impl_->on_accept_failure(bound, std::move(listener));
}
void StoreServer::announce_end(std::function<void()> on_change) {
  impl_->announce_end(std::move(on_change));
}
std::size_t StoreServer::unaware() const {
  return impl_->unaware();
}
void StoreServer::on_set(std::string part, std::function<void()> listener) {
  impl_->on_set(std::move(part), std::move(listener));
}
void StoreServer::erase_if(const std::function<bool(std::string_view)>& predicate) {
  impl_->erase_if(predicate);
}
void StoreServer::adopt(UniqueFd client, std::string_view sent) {
  impl_->adopt(std::move(client), sent);
}

UniqueFd StoreServer::connect_within() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    throw make_error(Errc::io, "cannot connect to the server of this process: {}", errno_text(errno));
  UniqueFd client(ends[0]);
  adopt(UniqueFd(ends[1]), "");
  return client;
}
std::map<std::string, std::uint64_t> StoreServer::operations() const {
  return impl_->operations();
}

std::optional<std::string> StoreServer::find(std::string_view key) const {
  return impl_->find(key);
}
void StoreServer::set_session_hub(SessionHub* hub) {
  impl_->set_hub(hub);
}
SessionSender& StoreServer::session_sender() {
  return *impl_;
}

}  // namespace ddprun
