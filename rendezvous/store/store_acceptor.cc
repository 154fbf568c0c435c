#include "rendezvous/store/store_acceptor.h"

#include <cerrno>
#include <poll.h>
#include <sys/resource.h>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "common/host_port.h"

namespace ddprun::rendezvous {
namespace {

using ErrorCode = boost::system::error_code;

constexpr int accepts_per_turn = 64;  // then other handlers of the loop run
constexpr std::chrono::milliseconds retry_pause{200};

bool readable_now(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool is_shortage(int cause) {
  return cause == EMFILE || cause == ENFILE || cause == ENOBUFS || cause == ENOMEM;
}

std::string descriptor_limit_text() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? fmt::format(" (ulimit -n is {})", limit.rlim_cur) : "";
}

}  // namespace

StoreAcceptor::StoreAcceptor(boost::asio::io_context& loop, const std::string& host, std::uint16_t port)
    : loop_(loop),
      listener_(loop, listen_on(host, port).release()),
      address_(local_address(listener_.native_handle())),
      timer_(loop) {}

std::string StoreAcceptor::endpoint() const {
  return format_host_port(address_.address, address_.port);
}

void StoreAcceptor::on_failure(std::chrono::milliseconds bound, std::function<void(const Error&)> listener) {
  bound_ = bound;
  failed_ = std::move(listener);
}

void StoreAcceptor::defer() {
  defer_accept(listener_.native_handle());
}

void StoreAcceptor::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  resume();
}

void StoreAcceptor::resume() {
  listener_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](ErrorCode error) {
    if (!error && !self->stopped_) self->accept_ready();
  });
}

void StoreAcceptor::stop() {
  stopped_ = true;
  ErrorCode ignored;
  listener_.close(ignored);
  timer_.cancel();
}

void StoreAcceptor::accept_ready() {
  for (int i = 0; i < accepts_per_turn; ++i) {
    if (!handlers_.has_room()) return;
    sockaddr_storage peer{};
    auto fd = accept_from(listener_.native_handle(), peer);
    const int cause = fd ? 0 : errno;
    if (fd) {
      failing_since_.reset();
      handlers_.accepted(std::move(fd), peer);
    } else if (is_shortage(cause)) {
      // The kernel reports it whether or not a client waits.
      if (!readable_now(listener_.native_handle())) {
        failing_since_.reset();
        break;
      }
      if (!handlers_.free_some()) return pause(cause);
    } else if (cause == EAGAIN) {
      break;
    }
  }
  resume();
}

// Out of descriptors or memory: the listener stays readable, so it retries after a pause instead of spinning.
void StoreAcceptor::pause(int cause) {
  handlers_.warn(fmt::format("cannot accept a connection: {}; {} are open{}", errno_text(cause), handlers_.count(),
                             descriptor_limit_text()));
  if (!failing_since_) failing_since_ = Clock::now();
  if (Clock::now() - *failing_since_ >= bound_) report_failure(cause);
  timer_.expires_after(retry_pause);
  timer_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (!error && !self->stopped_) self->resume();
  });
}

void StoreAcceptor::report_failure(int cause) {
  const auto listener = std::exchange(failed_, nullptr);
  if (!listener) return;
  const auto seconds = std::chrono::duration<double>(bound_).count();
  const auto failure = make_error(Errc::io, "the store at {} has accepted no connection for {:g} s: {}; {} are open{}",
                                  endpoint(), seconds, errno_text(cause), handlers_.count(), descriptor_limit_text());
  boost::asio::post(loop_, [listener, failure] { listener(failure); });
}

}  // namespace ddprun::rendezvous
