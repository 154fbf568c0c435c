#include "launcher/doctor/link_test.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <vector>

#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/trust/secret.h"

namespace ddprun::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr int round_trips = 200;
constexpr milliseconds stream_time{400};
// A token bucket lets more bytes through at the beginning than the link's rate.
constexpr milliseconds warm_up{100};
constexpr std::size_t block_bytes = std::size_t{64} * 1024;
// Bounds the bytes in a socket's buffer at the end of a stream: a slow link needs seconds for a full buffer.
constexpr int most_unsent = 128 * 1024;
// A connection without the token may block the server for this time.
constexpr milliseconds token_timeout{1'000};

// The requests of a client after its token. The client sends ping round_trips times, then takes, then gives.
enum class Request : char { ping = 'p', take = 't', give = 'g' };

std::int64_t wall_clock_ns() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A connected socket whose operations end at the deadline.
class Stream {
 public:
  Stream(UniqueFd socket, Deadline deadline, std::string peer)
      : socket_(std::move(socket)), deadline_(deadline), peer_(std::move(peer)) {
    const int on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most_unsent, sizeof(most_unsent));
    ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  }

  void set_deadline(Deadline deadline) { deadline_ = deadline; }

  // Waits for at least one byte, and returns how many have arrived.
  std::size_t read_some(char* target, std::size_t size) {
    for (;;) {
      const auto got = ::recv(socket_.get(), target, size, 0);
      if (got > 0) return static_cast<std::size_t>(got);
      if (got == 0) throw make_error(Errc::connection_lost, "{} closed the connection", peer_);
      wait(POLLIN);
    }
  }
  void read(char* target, std::size_t size) {
    for (std::size_t done = 0; done < size;) done += read_some(target + done, size - done);
  }
  // Returns the bytes that have arrived and were not read.
  std::int64_t unread() const {
    int bytes = 0;
    if (::ioctl(socket_.get(), FIONREAD, &bytes) != 0)
      throw make_error(Errc::io, "ioctl(FIONREAD) on the connection to {}: {}", peer_, errno_text(errno));
    return bytes;
  }
  void write(const char* source, std::size_t size) {
    for (std::size_t done = 0; done < size;) {
      const auto sent = ::send(socket_.get(), source + done, size - done, MSG_NOSIGNAL);
      if (sent >= 0)
        done += static_cast<std::size_t>(sent);
      else
        wait(POLLOUT);
    }
  }
  template <class T>
  T read_value() {
    T value;
    read(reinterpret_cast<char*>(&value), sizeof(value));
    return value;
  }
  template <class T>
  void write_value(const T& value) {
    write(reinterpret_cast<const char*>(&value), sizeof(value));
  }

 private:
  // Waits after a call that failed until the socket is ready; throws if the call failed for good.
  void wait(short events) {
    if (errno != EAGAIN && errno != EINTR)
      throw make_error(Errc::connection_lost, "the connection to {} broke: {}", peer_, errno_text(errno));
    pollfd watched{socket_.get(), events, 0};
    if (::poll(&watched, 1, deadline_.poll_timeout_ms()) == 0)
      throw make_error(Errc::timeout, "{} does not answer", peer_);
  }

  UniqueFd socket_;
  Deadline deadline_;
  std::string peer_;
};

// A stream consists of blocks whose first byte says whether another one follows.
void send_stream(Stream& stream) {
  std::vector<char> block(block_bytes, 1);
  const auto end = Clock::now() + stream_time;
  while (Clock::now() < end) stream.write(block.data(), block.size());
  block.front() = 0;
  stream.write(block.data(), block.size());
}

// Returns the rate after the warm-up, in bytes a second. A receiver that a busy machine runs late finds many bytes at
// the end of the warm-up: they arrived within it.
double receive_stream(Stream& stream) {
  std::vector<char> block(block_bytes);
  const auto begin = Clock::now();
  auto counted_from = begin;
  std::int64_t counted = 0;
  bool last = false;
  for (std::size_t at = 0; !last || at != 0;) {
    const auto got = stream.read_some(block.data() + at, block.size() - at);
    if (at == 0) last = block.front() == 0;
    at = (at + got) % block.size();
    const auto now = Clock::now();
    if (counted_from == begin && now - begin < warm_up) continue;
    if (counted_from != begin) {
      counted += static_cast<std::int64_t>(got);
    } else {
      counted_from = now;
      counted = -stream.unread();
    }
  }
  const auto took = std::chrono::duration<double>(Clock::now() - counted_from).count();
  return counted_from == begin || took <= 0 ? 0 : static_cast<double>(counted) / took;
}

void serve(Stream& stream, const std::string& token) {
  std::string theirs(token.size(), '\0');
  stream.read(theirs.data(), theirs.size());
  if (!equal_in_constant_time(theirs, token)) return;
  stream.set_deadline(Deadline::in(link_timeout));
  for (;;) {
    switch (stream.read_value<Request>()) {
      case Request::ping:
        stream.write_value(wall_clock_ns());
        break;
      case Request::take:
        stream.write_value(receive_stream(stream));
        break;
      case Request::give:
        send_stream(stream);
        break;
      default:
        return;
    }
  }
}

void measure_round_trips(Stream& stream, LinkFigures& figures) {
  std::vector<nanoseconds> trips;
  nanoseconds shortest = nanoseconds::max();
  for (int i = 0; i < round_trips; ++i) {
    const auto begin = Clock::now();
    const auto wall_begin = wall_clock_ns();
    stream.write_value(Request::ping);
    const auto theirs = stream.read_value<std::int64_t>();
    trips.emplace_back(Clock::now() - begin);
    if (trips.back() >= shortest) continue;
    shortest = trips.back();
    figures.clock_ahead = nanoseconds(theirs - wall_begin) - shortest / 2;
  }
  std::nth_element(trips.begin(), trips.begin() + round_trips / 2, trips.end());
  figures.round_trip = trips[round_trips / 2];
}

UniqueFd connect_to(const std::string& address, std::uint16_t port, Deadline deadline) {
  const auto peer = format_host_port(address, port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw make_error(Errc::unreachable, "'{}' is not an address", address);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw make_error(Errc::io, "cannot make a socket: {}", errno_text(errno));
  if (::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0) return socket;
  if (errno == EINPROGRESS) {
    pollfd watched{socket.get(), POLLOUT, 0};
    if (::poll(&watched, 1, deadline.poll_timeout_ms()) == 0)
      throw make_error(Errc::timeout, "cannot connect to {}: nothing answers there", peer);
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return socket;
    errno = error;
  }
  throw make_error(Errc::unreachable, "cannot connect to {}: {}", peer, errno_text(errno));
}

}  // namespace

LinkServer::LinkServer(std::string token)
    : token_(std::move(token)),
      listener_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      cancelled_(::eventfd(0, EFD_CLOEXEC)) {
  sockaddr_storage any{};
  socklen_t size = sizeof(sockaddr_in6);
  any.ss_family = AF_INET6;
  const int off = 0;
  if (listener_) {
    ::setsockopt(listener_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  } else {  // a host without IPv6
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    size = sizeof(sockaddr_in);
    any.ss_family = AF_INET;
  }
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  if (::bind(listener_.get(), address, size) != 0 || ::listen(listener_.get(), 64) != 0 ||
      ::getsockname(listener_.get(), address, &size) != 0)
    throw make_error(Errc::io, "cannot listen on a free port: {}", errno_text(errno));
  port_ = ntohs(any.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&any)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&any)->sin_port);
}

bool LinkServer::serve_one() {
  pollfd watched[] = {{cancelled_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  while (::poll(watched, 2, -1) < 0 && errno == EINTR) continue;
  if (watched[0].revents != 0) return false;
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return true;
  try {
    Stream stream(std::move(socket), Deadline::in(token_timeout), "the other host");
    serve(stream, token_);
  } catch (const Error&) {
    // The client reports the error, or has ended its test in order.
  }
  return true;
}

void LinkServer::cancel() {
  const std::uint64_t one = 1;
  static_cast<void>(::write(cancelled_.get(), &one, sizeof(one)));
}

LinkFigures test_link(const std::string& address, std::uint16_t port, const std::string& token, Deadline deadline) {
  Stream stream(connect_to(address, port, deadline), deadline, format_host_port(address, port));
  stream.write(token.data(), token.size());
  LinkFigures figures;
  measure_round_trips(stream, figures);
  stream.write_value(Request::take);
  send_stream(stream);
  figures.sent_bytes_per_s = stream.read_value<double>();
  stream.write_value(Request::give);
  figures.received_bytes_per_s = receive_stream(stream);
  return figures;
}

}  // namespace ddprun::doctor
