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

// An epoll set behind one Asio descriptor. Asio re-arms a descriptor for every wait, a system call per request; here an
// interest stays registered until it is changed, and one call returns all descriptors that are ready.
// Ownership: the event loop must outlive it; it does not own the descriptors. Threads: the loop's. Errors: the
//   constructor, add() and change() throw Errc::io.
class ReadySet {
 public:
  explicit ReadySet(boost::asio::io_context& loop);

  // interest: EPOLLIN, EPOLLOUT, both or 0; errors and hang-ups are always reported. Throws Errc::io.
  void add(int fd, std::uint64_t number, std::uint32_t interest);
  void change(int fd, std::uint64_t number, std::uint32_t interest);
  // Call before closing fd: a forked child may still hold a copy, which would keep it in the set.
  void remove(int fd);

  // Calls action once, from the loop, when a descriptor is ready; not after close().
  void async_wait(std::function<void()> action);
  // Returns the events that are ready, with the number in data.u64. If there are none, polls for at most poll_time,
  // yielding the core between two polls. The result is valid until the next call.
  std::span<const epoll_event> take(std::chrono::nanoseconds poll_time = {});
  void close();

 private:
  void control(int operation, int fd, std::uint64_t number, std::uint32_t interest);

  static constexpr std::size_t batch_size = 128;
  boost::asio::posix::stream_descriptor epoll_;
  epoll_event events_[batch_size];
};

}  // namespace ddprun::rendezvous
