#include "rendezvous/store/store_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <sys/socket.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/error.h"
#include "common/log.h"
#include "rendezvous/store/admission_gate.h"
#include "rendezvous/store/log_limiter.h"
#include "rendezvous/store/polling.h"
#include "rendezvous/store/ready_set.h"
#include "rendezvous/store/store_acceptor.h"
#include "rendezvous/store/store_connection.h"
#include "rendezvous/store/store_state.h"
#include "rendezvous/store/tcp_socket.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using rendezvous::ConnectionId;
using rendezvous::SessionRequest;
using Clock = std::chrono::steady_clock;
using ErrorCode = boost::system::error_code;

constexpr std::size_t receive_bytes = 64 << 10;
constexpr int polls_per_turn = 16;             // then other handlers of the loop run
constexpr ConnectionId server_connection = 0;  // for requests of the server itself; clients count from 1

using Connection = rendezvous::StoreConnection;
using ConnectionPtr = std::shared_ptr<Connection>;

}  // namespace

// One event is handled as follows: read once, apply every complete request, append the replies to the outputs of their
// connections, and flush_dirty(), which sends each of these outputs with one write.
class StoreServer::Impl final : public std::enable_shared_from_this<Impl>, public SessionSender {
 public:
  Impl(asio::io_context& loop, const StoreServerOptions& options);

  void start() {
    if (options_.admission) open_gate();
    acceptor_->start(accept_handlers());
    arm_ready();
  }
  void stop();

  std::string endpoint() const { return acceptor_->endpoint(); }
  std::uint16_t port() const { return acceptor_->address().port; }
  std::size_t connections() const { return connections_.size(); }
  void erase_if(const std::function<bool(std::string_view)>& predicate) { state_.erase_if(predicate); }
  std::optional<std::string> find(std::string_view key) const { return state_.find(key); }
  std::map<std::string, std::uint64_t> operations() const;
  void announce_end(std::function<void()> on_change);
  std::size_t unaware() const;
  void set_hub(SessionHub* hub) { hub_ = hub; }
  void adopt(UniqueFd client, std::string_view sent) {
    serve_admitted(std::make_shared<Connection>(next_id_++, std::move(client)), sent);
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
  void add(UniqueFd fd, const sockaddr_storage& peer);
  void watch(const ConnectionPtr& c);

  void open_gate();
  void admit(rendezvous::AdmissionGate::Admitted client);
  void serve_admitted(const ConnectionPtr& c, std::string_view sent);
  void ask(ConnectionId agent, const std::string& question);
  std::string refusal_of(std::string_view sent) const;
  void handle_confirm(const ConnectionPtr& c, const rendezvous::ConfirmRequest& request);
  bool receive(const ConnectionPtr& c, std::string_view bytes);
  void limit_starting();
  bool close_slow_clients();

  void arm_ready();
  void serve_ready();
  void ready(const ConnectionPtr& c, std::uint32_t events);
  void readable(const ConnectionPtr& c);
  void record_validated(const ConnectionPtr& c);
  void process(const ConnectionPtr& c);
  void handle(const ConnectionPtr& c, const rendezvous::Request& request);
  void handle_session(const ConnectionPtr& c, const rendezvous::Request& request);
  void report_key(const ConnectionPtr& c, std::string_view key, std::string_view value);
  void record_end_known(const ConnectionPtr& c, const rendezvous::Request& request);

  void deliver();
  void mark_dirty(const ConnectionPtr& c);

  void flush_dirty();
  void flush_connection(const ConnectionPtr& c);
  void flush(const ConnectionPtr& c);
  void set_interest(const ConnectionPtr& c);
  void schedule_flush();

  void reject(const ConnectionPtr& c, std::string_view reason);
  void finish(const ConnectionPtr& c);
  void set_deadline(const ConnectionPtr& c, std::optional<Clock::time_point> deadline);
  void arm_timer();
  void expire();
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args);

  asio::io_context& loop_;
  const StoreServerOptions options_;
  const std::shared_ptr<rendezvous::StoreAcceptor> acceptor_;
  asio::steady_timer timer_;
  std::optional<Clock::time_point> timer_set_for_;
  std::set<std::pair<Clock::time_point, ConnectionId>> deadlines_;
  bool stopped_ = false;
  bool flush_scheduled_ = false;
  std::function<void()> on_end_change_;  // set once the end is announced
  SessionHub* hub_ = nullptr;
  rendezvous::LogLimiter limiter_{{}};
  std::shared_ptr<rendezvous::AdmissionGate> gate_;  // null: everybody is admitted

  rendezvous::StoreState state_;
  rendezvous::ReadySet ready_;
  rendezvous::Polling polling_;
  std::unordered_map<ConnectionId, ConnectionPtr> connections_;
  std::set<ConnectionId> starting_;  // those of connections_ that have not sent VALIDATE; by age
  ConnectionId next_id_ = 1;
  std::array<std::uint64_t, std::variant_size_v<rendezvous::Request>> operations_{};  // by index of the variant
  std::vector<rendezvous::Reply> replies_;
  std::vector<ConnectionPtr> dirty_;
  std::vector<char> buffer_ = std::vector<char>(receive_bytes);  // shared by all connections
  std::string text_;                                             // shared, too: the text that a channel has decrypted
};

StoreServer::Impl::Impl(asio::io_context& loop, const StoreServerOptions& options)
    : loop_(loop),
      options_(options),
      acceptor_(std::make_shared<rendezvous::StoreAcceptor>(loop, options.host, options.port)),
      timer_(loop),
      ready_(loop) {}

// Queued handlers keep this object alive; they return as it is stopped.
void StoreServer::Impl::stop() {
  stopped_ = true;
  hub_ = nullptr;
  acceptor_->stop();
  timer_.cancel();
  ready_.close();
  if (gate_) gate_->stop();
  for (auto& [id, c] : connections_) {
    c->open = false;
    c->socket.reset();
  }
  connections_.clear();
  starting_.clear();
  dirty_.clear();
}

template <class... Args>
void StoreServer::Impl::warn(fmt::format_string<Args...> format, Args&&... args) {
  const auto suppressed = limiter_.admit(Clock::now());
  if (!suppressed) return;
  const auto text = fmt::format(format, std::forward<Args>(args)...);
  if (*suppressed > 0)
    log::warn("store: {} ({} similar lines suppressed)", text, *suppressed);
  else
    log::warn("store: {}", text);
}

// Accepting

// They keep this object alive while they run.
rendezvous::StoreAcceptor::Handlers StoreServer::Impl::accept_handlers() {
  const auto weak = weak_from_this();
  return {.accepted =
              [weak](UniqueFd fd, const sockaddr_storage& peer) {
                if (const auto self = weak.lock()) self->add(std::move(fd), peer);
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
                return self ? self->connections_.size() : 0;
              },
          .warn =
              [weak](const std::string& text) {
                if (const auto self = weak.lock()) self->warn("{}", text);
              }};
}

// Keeps descriptors free for clients that begin with a request, as every real client does.
void StoreServer::Impl::limit_starting() {
  while (starting_.size() > options_.max_starting) {
    const auto oldest = connections_.at(*starting_.begin());
    if (!oldest->is_slow(options_.slow_start)) return;
    reject(oldest, "it sent no VALIDATE while others wait");
    schedule_flush();
  }
}

// Returns whether there was such a client.
bool StoreServer::Impl::close_slow_clients() {
  std::vector<ConnectionPtr> slow;
  for (const auto& [id, c] : connections_)
    if (c->is_slow(options_.slow_start)) slow.push_back(c);
  for (const auto& c : slow) reject(c, "it sent no complete request while others wait");
  schedule_flush();
  const bool more = gate_ && gate_->close_older_than(options_.slow_start);
  return more || !slow.empty();
}

void StoreServer::Impl::add(UniqueFd fd, const sockaddr_storage& peer) {
  if (gate_) return gate_->add(next_id_++, std::move(fd), peer);
  rendezvous::set_connection_options(fd.get());
  watch(std::make_shared<Connection>(next_id_++, std::move(fd)));
  limit_starting();
}

void StoreServer::Impl::watch(const ConnectionPtr& c) {
  connections_.emplace(c->id, c);
  starting_.insert(c->id);
  set_deadline(c, c->next_deadline(options_));
  ready_.add(c->socket.get(), c->id, c->interest);
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
  const auto c = std::make_shared<Connection>(client.id, std::move(client.socket));
  c->by_token = client.by_token;
  c->channel = std::move(client.channel);
  log::debug("store: admitted {} by {}", c->peer_text(), c->by_token ? "its token" : "the owner of its socket");
  serve_admitted(c, client.rest);
}

void StoreServer::Impl::serve_admitted(const ConnectionPtr& c, std::string_view sent) {
  watch(c);
  if (receive(c, sent)) process(c);
  record_validated(c);
  mark_dirty(c);
  schedule_flush();
}

void StoreServer::Impl::ask(ConnectionId agent, const std::string& question) {
  const auto found = connections_.find(agent);
  if (found == connections_.end()) return;
  rendezvous::put_vec(found->second->output, question);
  mark_dirty(found->second);
  schedule_flush();
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

// Reading

void StoreServer::Impl::arm_ready() {
  ready_.async_wait([self = shared_from_this()] {
    if (self->stopped_) return;
    self->serve_ready();
    if (!self->stopped_) self->arm_ready();
  });
}

// Takes batches of events while more than one is ready at a time, so that a busy server makes fewer system calls.
void StoreServer::Impl::serve_ready() {
  Clock::duration poll_time{};
  for (int i = 0; i < polls_per_turn && !stopped_; ++i) {
    const auto events = ready_.take(poll_time);
    const bool polled = poll_time > Clock::duration::zero();
    if (events.empty()) {
      if (polled) polling_.poll_missed();
      return;
    }
    for (const auto& event : events) {
      const auto found = connections_.find(event.data.u64);
      if (found == connections_.end()) continue;  // closed by an event before this one
      const ConnectionPtr c = found->second;
      ready(c, event.events);
      flush_dirty();
    }
    poll_time = polling_.served(events.size(), Clock::now(), polled);
    if (events.size() < 2 && poll_time == Clock::duration::zero()) return;
  }
}

void StoreServer::Impl::ready(const ConnectionPtr& c, std::uint32_t events) {
  mark_dirty(c);
  if ((events & EPOLLOUT) != 0) c->writing = false;
  c->peer_closed = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if ((c->interest & EPOLLIN) != 0 && (events & ~std::uint32_t{EPOLLOUT}) != 0) return readable(c);
  if (c->peer_closed) finish(c);  // reading is paused, and writing is impossible
}

// Passes received bytes to the parser; returns false if the connection is closed then.
bool StoreServer::Impl::receive(const ConnectionPtr& c, std::string_view bytes) {
  try {
    c->feed(bytes, text_);
    return true;
  } catch (const Error& e) {
    if (e.code() == Errc::connection_lost)
      finish(c);
    else
      reject(c, e.what());
    return false;
  }
}

void StoreServer::Impl::record_validated(const ConnectionPtr& c) {
  if (!c->starting || !c->parser.validated()) return;
  c->starting = false;
  starting_.erase(c->id);
}

void StoreServer::Impl::readable(const ConnectionPtr& c) {
  const auto n = ::recv(c->socket.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (n > 0) {
    c->progress = Clock::now();
    if (!receive(c, {buffer_.data(), static_cast<std::size_t>(n)})) return;
    process(c);
    record_validated(c);
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    finish(c);
  }
}

void StoreServer::Impl::process(const ConnectionPtr& c) {
  try {
    while (c->open && !c->paused()) {
      const auto* request = c->parser.next();
      if (!request) return;
      if (c->session || std::holds_alternative<SessionRequest>(*request))
        handle_session(c, *request);
      else if (const auto* confirm = std::get_if<rendezvous::ConfirmRequest>(request))
        handle_confirm(c, *confirm);
      else
        handle(c, *request);
    }
    c->parser.retain();
  } catch (const Error& e) {
    reject(c, e.what());
  }
}

void StoreServer::Impl::handle(const ConnectionPtr& c, const rendezvous::Request& request) {
  if (const auto* set = std::get_if<rendezvous::SetRequest>(&request)) report_key(c, set->key, set->value);
  if (const auto* set = std::get_if<rendezvous::CompareSetRequest>(&request)) report_key(c, set->key, set->desired);
  ++operations_[request.index()];
  state_.apply(c->id, request, replies_);
  deliver();
  if (on_end_change_) record_end_known(c, request);
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
    if (c->peer_closed) return finish(c);  // the client has given up this attempt
    if (state_.is_waiting(c->id)) throw Error(Errc::protocol, "SESSION while a wait is pending");
    c->session = true;
    hub_->on_open(c->id, {c->peer.address, c->peer.port, rendezvous::local_address(c->socket.get()).address});
  }
  if (hub_) hub_->on_frame(c->id, bytes);
}

// Moves the replies of the state machine to the outputs of their connections.
void StoreServer::Impl::deliver() {
  for (auto& reply : replies_) {
    const auto found = connections_.find(reply.to);
    if (found == connections_.end()) continue;
    auto& output = found->second->output;
    if (output.empty())
      output = std::move(reply.bytes);
    else
      output.append(reply.bytes);
    mark_dirty(found->second);
  }
  replies_.clear();
}

// Has flush_dirty() process the connection.
void StoreServer::Impl::mark_dirty(const ConnectionPtr& c) {
  if (std::exchange(c->dirty, true)) return;
  dirty_.push_back(c);
}

// Flushing

void StoreServer::Impl::flush_dirty() {
  // dirty_ may grow meanwhile: the last will of a connection that closes can end waits of others.
  for (std::size_t i = 0; i < dirty_.size(); ++i) {  // NOLINT(modernize-loop-convert)
    const auto c = dirty_[i];
    c->dirty = false;
    if (c->open) flush_connection(c);
  }
  dirty_.clear();
}

void StoreServer::Impl::flush_connection(const ConnectionPtr& c) {
  for (;;) {
    if (c->unsent() > 0 && !c->writing) flush(c);
    if (!c->open) return;
    if (c->unsent() > options_.max_queued_bytes)
      return reject(c, fmt::format("it has left {} bytes of replies unread", c->unsent()));
    if (c->closing && c->unsent() == 0) return finish(c);
    if (c->paused() || c->parser.pending_bytes() == 0) break;
    // Complete requests may have been buffered while the output was full.
    const auto before = c->parser.pending_bytes();
    process(c);
    if (!c->open) return;
    if (c->parser.pending_bytes() == before) break;
  }
  set_deadline(c, c->next_deadline(options_));
  set_interest(c);
}

void StoreServer::Impl::flush(const ConnectionPtr& c) {
  try {
    if (c->send_replies() == Connection::Sending::broken) finish(c);
  } catch (const Error& e) {
    reject(c, e.what());
  }
}

void StoreServer::Impl::set_interest(const ConnectionPtr& c) {
  const std::uint32_t interest = (c->paused() ? 0U : EPOLLIN) | (c->writing ? EPOLLOUT : 0U);
  if (std::exchange(c->interest, interest) != interest) ready_.change(c->socket.get(), c->id, interest);
}

void StoreServer::Impl::schedule_flush() {
  if (std::exchange(flush_scheduled_, true)) return;
  asio::post(loop_, [self = shared_from_this()] {
    self->flush_scheduled_ = false;
    if (!self->stopped_) self->flush_dirty();
  });
}

// Sessions

void StoreServer::Impl::send(SessionId session, std::string frame) {
  if (frame.size() > rendezvous::max_value_bytes)
    throw make_error(Errc::usage, "a session frame of {} bytes (at most {})", frame.size(),
                     rendezvous::max_value_bytes);
  const auto found = connections_.find(session);
  if (found == connections_.end() || !found->second->session || found->second->closing) return;
  const ConnectionPtr& c = found->second;
  c->queue_frame(std::move(frame));
  mark_dirty(c);
  schedule_flush();
}

void StoreServer::Impl::close(SessionId session) {
  const auto found = connections_.find(session);
  if (found == connections_.end() || !found->second->session || found->second->closing) return;
  found->second->closing = true;
  found->second->progress = Clock::now();
  mark_dirty(found->second);
  schedule_flush();
}

void StoreServer::Impl::set_key(std::string_view key, std::string_view value) {
  state_.apply(server_connection, rendezvous::SetRequest{key, value}, replies_);
  deliver();
  schedule_flush();
}

void StoreServer::Impl::erase_key(std::string_view key) {
  state_.erase_if([key](std::string_view name) { return name == key; });
}

// Closing

void StoreServer::Impl::announce_end(std::function<void()> on_change) {
  state_.announce_end();
  on_end_change_ = std::move(on_change);
}

std::size_t StoreServer::Impl::unaware() const {
  return static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(), [](const auto& each) { return !each.second->aware; }));
}

void StoreServer::Impl::reject(const ConnectionPtr& c, std::string_view reason) {
  warn("closed the connection of {}: {}", c->peer_text(), reason);
  finish(c);
}

void StoreServer::Impl::finish(const ConnectionPtr& c) {
  if (!std::exchange(c->open, false)) return;
  set_deadline(c, std::nullopt);
  connections_.erase(c->id);
  starting_.erase(c->id);
  if (gate_) gate_->closed(c->id);
  ready_.remove(c->socket.get());
  c->socket.reset();
  state_.close(c->id, replies_);
  deliver();
  if ((c->session || c->reported) && hub_) hub_->on_close(c->id);
  if (on_end_change_) asio::post(loop_, on_end_change_);
}

void StoreServer::Impl::set_deadline(const ConnectionPtr& c, std::optional<Clock::time_point> deadline) {
  if (c->deadline == deadline) return;
  if (c->deadline) deadlines_.erase({*c->deadline, c->id});
  c->deadline = deadline;
  if (!deadline) return;
  deadlines_.emplace(*deadline, c->id);
  if (!timer_set_for_ || *deadline < *timer_set_for_) arm_timer();
}

void StoreServer::Impl::arm_timer() {
  timer_set_for_ = deadlines_.begin()->first;
  timer_.expires_at(*timer_set_for_);
  timer_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (error || self->stopped_) return;
    self->timer_set_for_.reset();
    self->expire();
    self->flush_dirty();
    if (!self->deadlines_.empty() && !self->timer_set_for_) self->arm_timer();
  });
}

void StoreServer::Impl::expire() {
  const auto now = Clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto c = connections_.at(deadlines_.begin()->second);
    if (c->closing) {
      finish(c);
    } else if (c->unsent() > 0) {
      reject(c, fmt::format("it does not read; {} bytes are queued for it", c->unsent()));
    } else if (!c->parser.validated()) {
      reject(c, "it sent no VALIDATE");
    } else {
      reject(c, "it sent an incomplete request");
    }
  }
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
