#include "rendezvous/store/store_connections.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "common/error.h"
#include "common/log.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr std::size_t receive_bytes = 64 << 10;
constexpr int polls_per_turn = 16;  // then other handlers of the loop run

}  // namespace

StoreConnections::StoreConnections(asio::io_context& loop, const StoreServerOptions& options)
    : loop_(loop), options_(options), ready_(loop), timer_(loop), buffer_(receive_bytes) {}

void StoreConnections::start(const std::shared_ptr<ConnectionHandler>& handler) {
  owner_ = handler;
  handler_ = handler.get();
  wait_for_events();
}

// Queued handlers keep this object alive; they return as it is stopped.
void StoreConnections::stop() {
  stopped_ = true;
  timer_.cancel();
  ready_.close();
  for (auto& [id, c] : connections_) {
    c->open = false;
    c->socket.reset();
  }
  connections_.clear();
  starting_.clear();
  changed_.clear();
}

void StoreConnections::log_line(const std::string& text, std::size_t suppressed) {
  if (suppressed > 0)
    log::warn("store: {} ({} similar lines suppressed)", text, suppressed);
  else
    log::warn("store: {}", text);
}

// The set

void StoreConnections::watch(const ConnectionPtr& c) {
  connections_.emplace(c->id, c);
  starting_.insert(c->id);
  set_deadline(c, c->next_deadline(options_));
  ready_.add(c->socket.get(), c->id, c->interest);
}

void StoreConnections::add(const ConnectionPtr& c) {
  watch(c);
  limit_starting();
}

void StoreConnections::add_admitted(const ConnectionPtr& c, std::string_view sent) {
  watch(c);
  if (receive(c, sent)) serve_requests(c);
  record_validated(c);
  changed(c);
  flush_soon();
}

ConnectionPtr StoreConnections::find(ConnectionId id) const {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second;
}

std::size_t StoreConnections::count_if(const std::function<bool(const StoreConnection&)>& predicate) const {
  return static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(),
                                                [&](const auto& each) { return predicate(*each.second); }));
}

// Keeps descriptors free for clients that begin with a request, as every real client does.
void StoreConnections::limit_starting() {
  while (starting_.size() > options_.max_starting) {
    const auto oldest = connections_.at(*starting_.begin());
    if (!oldest->is_slow(options_.slow_start)) return;
    reject(oldest, "it sent no VALIDATE while others wait");
    flush_soon();
  }
}

bool StoreConnections::close_slow() {
  std::vector<ConnectionPtr> slow;
  for (const auto& [id, c] : connections_)
    if (c->is_slow(options_.slow_start)) slow.push_back(c);
  for (const auto& c : slow) reject(c, "it sent no complete request while others wait");
  flush_soon();
  return !slow.empty();
}

// Reading

void StoreConnections::wait_for_events() {
  ready_.async_wait([self = shared_from_this()] {
    const auto owner = self->owner_.lock();
    if (self->stopped_ || !owner) return;
    self->serve_events();
    if (!self->stopped_) self->wait_for_events();
  });
}

// Takes batches of events while more than one is ready at a time, so that a busy server makes fewer system calls.
void StoreConnections::serve_events() {
  Clock::duration poll_time{};
  for (int i = 0; i < polls_per_turn && !stopped_; ++i) {
    const auto events = ready_.take(poll_time);
    const bool polled = poll_time > Clock::duration::zero();
    if (events.empty()) {
      if (polled) polling_.poll_missed();
      return;
    }
    for (const auto& one : events) {
      const auto c = find(one.data.u64);
      if (!c) continue;  // closed by an event before this one
      event(c, one.events);
      flush();
    }
    poll_time = polling_.served(events.size(), Clock::now(), polled);
    if (events.size() < 2 && poll_time == Clock::duration::zero()) return;
  }
}

void StoreConnections::event(const ConnectionPtr& c, std::uint32_t events) {
  changed(c);
  if ((events & EPOLLOUT) != 0) c->writing = false;
  c->peer_closed = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if ((c->interest & EPOLLIN) != 0 && (events & ~std::uint32_t{EPOLLOUT}) != 0) return read(c);
  if (c->peer_closed) finish(c);  // reading is paused, and writing is impossible
}

// Passes received bytes to the parser; returns false if the connection is closed then.
bool StoreConnections::receive(const ConnectionPtr& c, std::string_view bytes) {
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

void StoreConnections::record_validated(const ConnectionPtr& c) {
  if (!c->starting || !c->parser.validated()) return;
  c->starting = false;
  starting_.erase(c->id);
}

void StoreConnections::read(const ConnectionPtr& c) {
  const auto n = ::recv(c->socket.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (n > 0) {
    c->progress = Clock::now();
    if (!receive(c, {buffer_.data(), static_cast<std::size_t>(n)})) return;
    serve_requests(c);
    record_validated(c);
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    finish(c);
  }
}

void StoreConnections::serve_requests(const ConnectionPtr& c) {
  try {
    while (c->open && !c->paused()) {
      const auto* request = c->parser.next();
      if (!request) return;
      handler_->serve(c, *request);
    }
    c->parser.retain();
  } catch (const Error& e) {
    reject(c, e.what());
  }
}

// Writing

void StoreConnections::changed(const ConnectionPtr& c) {
  if (std::exchange(c->dirty, true)) return;
  changed_.push_back(c);
}

void StoreConnections::flush() {
  // changed_ may grow meanwhile: the last will of a connection that closes can end waits of others.
  for (std::size_t i = 0; i < changed_.size(); ++i) {  // NOLINT(modernize-loop-convert)
    const auto c = changed_[i];
    c->dirty = false;
    if (c->open) flush(c);
  }
  changed_.clear();
}

void StoreConnections::flush(const ConnectionPtr& c) {
  for (;;) {
    if (c->unsent() > 0 && !c->writing) send(c);
    if (!c->open) return;
    if (c->unsent() > options_.max_queued_bytes)
      return reject(c, fmt::format("it has left {} bytes of replies unread", c->unsent()));
    if (c->closing && c->unsent() == 0) return finish(c);
    if (c->paused() || c->parser.pending_bytes() == 0) break;
    // Complete requests may have been buffered while the output was full.
    const auto before = c->parser.pending_bytes();
    serve_requests(c);
    if (!c->open) return;
    if (c->parser.pending_bytes() == before) break;
  }
  set_deadline(c, c->next_deadline(options_));
  set_interest(c);
}

void StoreConnections::send(const ConnectionPtr& c) {
  try {
    if (c->send_replies() == StoreConnection::Sending::broken) finish(c);
  } catch (const Error& e) {
    reject(c, e.what());
  }
}

void StoreConnections::set_interest(const ConnectionPtr& c) {
  const std::uint32_t interest = (c->paused() ? 0U : EPOLLIN) | (c->writing ? EPOLLOUT : 0U);
  if (std::exchange(c->interest, interest) != interest) ready_.change(c->socket.get(), c->id, interest);
}

void StoreConnections::flush_soon() {
  if (std::exchange(flush_scheduled_, true)) return;
  asio::post(loop_, [self = shared_from_this()] {
    self->flush_scheduled_ = false;
    const auto owner = self->owner_.lock();
    if (!self->stopped_ && owner) self->flush();
  });
}

// Closing

void StoreConnections::reject(const ConnectionPtr& c, std::string_view reason) {
  warn("closed the connection of {}: {}", c->peer_text(), reason);
  finish(c);
}

void StoreConnections::finish(const ConnectionPtr& c) {
  if (!std::exchange(c->open, false)) return;
  set_deadline(c, std::nullopt);
  connections_.erase(c->id);
  starting_.erase(c->id);
  ready_.remove(c->socket.get());
  c->socket.reset();
  handler_->closed(c);
}

void StoreConnections::set_deadline(const ConnectionPtr& c, std::optional<Clock::time_point> deadline) {
  if (c->deadline == deadline) return;
  if (c->deadline) deadlines_.erase({*c->deadline, c->id});
  c->deadline = deadline;
  if (!deadline) return;
  deadlines_.emplace(*deadline, c->id);
  if (!timer_set_for_ || *deadline < *timer_set_for_) arm_timer();
}

void StoreConnections::arm_timer() {
  timer_set_for_ = deadlines_.begin()->first;
  timer_.expires_at(*timer_set_for_);
  timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
    const auto owner = self->owner_.lock();
    if (error || self->stopped_ || !owner) return;
    self->timer_set_for_.reset();
    self->expire();
    self->flush();
    if (!self->deadlines_.empty() && !self->timer_set_for_) self->arm_timer();
  });
}

void StoreConnections::expire() {
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

}  // namespace ddprun::rendezvous
