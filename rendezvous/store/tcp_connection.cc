#include "rendezvous/store/tcp_connection.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>
#include <utility>

#include "common/error.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_state.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::uint8_t wait_over = 0;
constexpr std::uint8_t wait_cancelled = 1;

void require_status(std::uint8_t expected, std::uint8_t got) {
  if (got != expected) throw make_error(Errc::protocol, "it replied {} instead of {}", got, expected);
}

}  // namespace

TcpConnection::TcpConnection(UniqueFd fd, std::unique_ptr<TlsChannel> channel, std::chrono::milliseconds grace,
                             const std::stop_token& stop)
    : fd_(std::move(fd)), grace_(grace), shutdown_on_stop_(fd_.get(), stop), channel_(std::move(channel)) {}

void TcpConnection::send_bytes(std::string_view bytes, Deadline deadline) {
  if (!channel_) return send_all(fd_.get(), bytes, deadline);
  const std::lock_guard lock(channel_mutex_);
  channel_->write(bytes);
  send_all(fd_.get(), channel_->take_output(), deadline);
}

// Receives at least one byte, at most size.
std::size_t TcpConnection::receive(char* target, std::size_t size, Deadline deadline) {
  if (!channel_) return receive_some(fd_.get(), target, size, deadline);
  while (text_begin_ == text_.size()) {
    char sealed[16 << 10];  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const auto got = receive_some(fd_.get(), sealed, sizeof sealed, deadline);
    text_.clear();
    text_begin_ = 0;
    const std::lock_guard lock(channel_mutex_);
    channel_->feed({sealed, got});
    channel_->read(text_);
  }
  const auto n = std::min(size, text_.size() - text_begin_);
  std::memcpy(target, text_.data() + text_begin_, n);
  text_begin_ += n;
  return n;
}

void TcpConnection::send(const Request& request, Deadline deadline) {
  out_.clear();
  encode(request, out_);
  send_bytes(out_, deadline);
  if (out_.capacity() > sizeof buffer_) out_ = std::string();
}

// PyTorch's server requires VALIDATE in one piece. The probe is sent with PING, to save a round trip.
bool TcpConnection::handshake(Deadline deadline) {
  const auto nonce = static_cast<std::uint32_t>(::getpid());
  const std::string_view probe[] = {probe_key};
  send(ValidateRequest{}, deadline);
  send_bytes(encode(PingRequest{nonce}) + encode(CheckRequest{probe}), deadline);
  if (const auto echo = read_number<std::uint32_t>(deadline); echo != nonce)
    throw make_error(Errc::protocol, "it replied to PING {} with {}", nonce, echo);
  return read_number<std::uint8_t>(deadline) == 0;
}

std::string TcpConnection::read_vec(Deadline deadline) {
  const auto size = read_number<std::uint64_t>(deadline);
  if (size > max_reply_bytes)
    throw make_error(Errc::protocol, "it replied with a value of {} bytes (at most {})", size, max_reply_bytes);
  return read(size, deadline);
}

void TcpConnection::read_done(Deadline deadline) {
  require_status(0, read_number<std::uint8_t>(deadline));
}

void TcpConnection::read_cancelled(Deadline deadline) {
  require_status(wait_cancelled, read_number<std::uint8_t>(deadline));
}

Deadline TcpConnection::at_least_grace(Deadline deadline) const {
  return deadline.remaining() > grace_ ? deadline : Deadline::in(grace_);
}

TcpConnection::End TcpConnection::end_of_wait(Deadline deadline, bool wakeable) {
  if (wakeable && begin_wait() == Wait::cancelled) deadline = Deadline::at(Deadline::Clock::now());
  auto status = status_by(deadline);
  const auto reply_deadline = at_least_grace(deadline);
  const bool woken = wakeable && finish_wait();
  if (!status && !woken) send(CancelWaitRequest{}, reply_deadline);
  const bool cancelled = !status || woken;
  if (!status) status = read_number<std::uint8_t>(reply_deadline);
  if (cancelled && *status == wait_cancelled) throw WaitTimeout{};
  require_status(wait_over, *status);
  return {cancelled, reply_deadline};
}

void TcpConnection::await(Deadline deadline, bool wakeable) {
  await(
      deadline, [](Deadline) { return 0; }, wakeable);
}

void TcpConnection::wake() {
  const std::lock_guard lock(wait_mutex_);
  if (wait_ == Wait::sent) send_bytes(encode(CancelWaitRequest{}), Deadline::in(grace_));
  wait_ = Wait::cancelled;
}

// Returns the previous state: cancelled if wake() was called before this wait.
TcpConnection::Wait TcpConnection::begin_wait() {
  const std::lock_guard lock(wait_mutex_);
  return std::exchange(wait_, Wait::sent);
}

// Returns whether wake() has cancelled the wait.
bool TcpConnection::finish_wait() {
  const std::lock_guard lock(wait_mutex_);
  return std::exchange(wait_, Wait::none) == Wait::cancelled;
}

// Returns the byte that ends a wait; nullopt at the deadline. It is one byte, so a timeout leaves no partial read.
std::optional<std::uint8_t> TcpConnection::status_by(Deadline deadline) {
  try {
    return read_number<std::uint8_t>(deadline);
  } catch (const Error& e) {
    if (e.code() != Errc::timeout) throw;
    return std::nullopt;
  }
}

std::string TcpConnection::read(std::size_t size, Deadline deadline) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    if (read_begin_ == read_end_ && size - done >= sizeof buffer_) {
      done += receive(bytes.data() + done, size - done, deadline);
      continue;
    }
    if (read_begin_ == read_end_) {
      read_end_ = receive(buffer_, sizeof buffer_, deadline);
      read_begin_ = 0;
    }
    const auto n = std::min(size - done, read_end_ - read_begin_);
    std::memcpy(bytes.data() + done, buffer_ + read_begin_, n);
    read_begin_ += n;
    done += n;
  }
  return bytes;
}

}  // namespace ddprun::rendezvous
