#include "rendezvous/store/ready_set.h"

#include <algorithm>
#include <cerrno>
#include <sched.h>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "common/error.h"

namespace ddprun::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

int make_epoll() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) throw make_error(Errc::io, "epoll_create1 failed: {}", errno_text(errno));
  return fd;
}

}  // namespace

ReadySet::ReadySet(boost::asio::io_context& loop) : epoll_(loop, make_epoll()) {}

void ReadySet::add(int fd, std::uint64_t number, std::uint32_t interest) {
  control(EPOLL_CTL_ADD, fd, number, interest);
}
void ReadySet::change(int fd, std::uint64_t number, std::uint32_t interest) {
  control(EPOLL_CTL_MOD, fd, number, interest);
}

void ReadySet::remove(int fd) {
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, fd, nullptr);
}

void ReadySet::control(int operation, int fd, std::uint64_t number, std::uint32_t interest) {
  epoll_event event{.events = interest, .data = {.u64 = number}};
  if (::epoll_ctl(epoll_.native_handle(), operation, fd, &event) != 0)
    throw make_error(Errc::io, "epoll_ctl failed: {}", errno_text(errno));
}

void ReadySet::async_wait(std::function<void()> action) {
  epoll_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [action = std::move(action)](const boost::system::error_code& error) {
                      if (!error) action();
                    });
}

std::span<const epoll_event> ReadySet::take(std::chrono::nanoseconds poll_time) {
  const auto end = poll_time > poll_time.zero() ? Clock::now() + poll_time : Clock::time_point();
  int count = ::epoll_wait(epoll_.native_handle(), events_, batch_size, 0);
  while (count == 0 && Clock::now() < end) {
    ::sched_yield();
    count = ::epoll_wait(epoll_.native_handle(), events_, batch_size, 0);
  }
  return {events_, static_cast<std::size_t>(std::max(count, 0))};
}

void ReadySet::close() {
  boost::system::error_code ignored;
  epoll_.close(ignored);
}

}  // namespace ddprun::rendezvous
