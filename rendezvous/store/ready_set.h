#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <sys/epoll.h>

#include <boost/asio/posix/stream_descriptor.hpp>

namespace boost::asio {
class io_context;
}

namespace ddprun::rendezvous {

// Which of many descriptors are ready, behind the one that Asio waits for. Asio asks the system anew for a descriptor
// each time somebody waits for it, which is a system call for every request served; here an interest lasts until it is
// changed, and what came meanwhile is taken in one call.
class ReadySet {
 public:
  explicit ReadySet(boost::asio::io_context& loop);

  // Interest is EPOLLIN, EPOLLOUT, both or 0; errors and hang-ups are always reported. Throws Errc::io.
  void add(int fd, std::uint64_t number, std::uint32_t interest);
  void change(int fd, std::uint64_t number, std::uint32_t interest);
  // Before it is closed: a process forked meanwhile may keep it open for a while.
  void remove(int fd);

  // Calls action once, from the loop, when something is ready; not after close().
  void async_wait(std::function<void()> action);
  // What is ready now, or as soon as something is within that time, which is not slept but left to others that want the
  // processor: data.u64 is the number. Valid until the next call.
  std::span<const epoll_event> take(std::chrono::nanoseconds look = {});
  void close();

 private:
  void control(int operation, int fd, std::uint64_t number, std::uint32_t interest);

  static constexpr std::size_t at_a_time = 128;
  boost::asio::posix::stream_descriptor epoll_;
  epoll_event events_[at_a_time];
};

}  // namespace ddprun::rendezvous
