#include "rendezvous/store/store_connection.h"

#include <algorithm>
#include <cerrno>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

#include "common/bytes.h"
#include "common/error.h"
#include "common/host_port.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t pause_reading_above_bytes = 1 << 20;  // unsent replies
constexpr std::size_t max_idle_output_capacity = 512;
constexpr std::size_t large_frame_bytes = 4096;  // a system call is cheaper than a copy from this size on
constexpr std::chrono::seconds close_grace{5};

// Requests that the server has not read yet.
bool has_unread_bytes(int fd) {
  int bytes = 0;
  return ::ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

// Sends both without copying and returns how many bytes the socket accepted: a round is sent to each of its nodes, and
// copies of large frames would add up. An error is reported by the next write.
std::size_t send_two(int fd, std::string& first, std::string& second) {
  iovec parts[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  const msghdr message{.msg_iov = parts, .msg_iovlen = 2};
  const auto n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

}  // namespace

StoreConnection::StoreConnection(ConnectionId number, UniqueFd fd)
    : id(number), socket(std::move(fd)), peer(peer_address(socket.get())), began(Clock::now()), progress(began) {}

std::string StoreConnection::peer_text() const {
  return peer.port == 0 ? "a process of this host" : format_host_port(peer.address, peer.port);
}

bool StoreConnection::paused() const {
  return closing || unsent() > pause_reading_above_bytes;
}

bool StoreConnection::is_slow(Clock::duration bound) const {
  if (closing || unsent() > 0 || (!starting && parser.pending_bytes() == 0)) return false;
  const auto since = starting ? began : progress;
  return Clock::now() - since >= bound && !has_unread_bytes(socket.get());
}

std::optional<StoreConnection::Clock::time_point> StoreConnection::next_deadline(
    const StoreServerOptions& options) const {
  if (closing) return progress + close_grace;
  if (unsent() > 0) return progress + options.write_timeout;
  if (!parser.validated()) return began + options.start_timeout;
  if (parser.pending_bytes() > 0) return progress + options.request_timeout;
  return std::nullopt;
}

void StoreConnection::feed(std::string_view bytes, std::string& text) {
  if (!channel) return parser.feed(bytes);
  text.clear();
  channel->feed(bytes);
  channel->read(text);
  parser.feed(text);
}

StoreConnection::Sending StoreConnection::send_replies() {
  if (channel) seal();
  auto& bytes = outgoing();
  while (unsent() > 0) {
    const auto n = ::send(socket.get(), bytes.data() + sent, unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
      progress = Clock::now();
    } else if (errno == EAGAIN) {
      // Erases the sent bytes once they are the larger part, so that each byte is moved at most once.
      if (sent > unsent()) bytes.erase(0, std::exchange(sent, 0));
      writing = true;
      return Sending::blocked;
    } else if (errno != EINTR) {
      return Sending::broken;
    }
  }
  sent = 0;
  if (bytes.capacity() > max_idle_output_capacity)
    bytes = std::string();
  else
    bytes.clear();
  return Sending::done;
}

// Encrypts the replies.
void StoreConnection::seal() {
  if (output.empty()) return;
  channel->write(std::exchange(output, {}));
  sealed += channel->take_output();
}

void StoreConnection::queue_frame(std::string frame) {
  std::string length;
  put_le<std::uint64_t>(length, frame.size());
  const bool at_once = frame.size() >= large_frame_bytes && unsent() == 0 && !writing && !channel;
  const std::size_t accepted = at_once ? send_two(socket.get(), length, frame) : 0;
  if (accepted < length.size()) output.append(length, accepted);
  output.append(frame, accepted - std::min(accepted, length.size()));
}

}  // namespace ddprun::rendezvous
