#include "tests/bench/echo_server.h"

#include <cstdio>
#include <map>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "rendezvous/store/tcp_socket.h"
#include "tests/support/accept.h"

namespace ddprun::bench {
namespace {

void watch(int epoll, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) std::perror("ddprun-bench: epoll_ctl");
}

// Returns false when the connection has ended. A reply that the socket does not accept at once is a reason to end it: a
// client has one small request in progress.
bool echo(int fd) {
  char buffer[16384];
  const auto n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
  return n > 0 && ::send(fd, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL | MSG_DONTWAIT) == n;
}

}  // namespace

EchoServer::EchoServer()
    : listener_(rendezvous::listen_on("127.0.0.1", 0)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { serve(); }) {}

EchoServer::~EchoServer() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

std::uint16_t EchoServer::port() const {
  return rendezvous::local_address(listener_.get()).port;
}

void EchoServer::serve() {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  watch(epoll.get(), listener_.get());
  watch(epoll.get(), stop_.get());
  std::map<int, UniqueFd> clients;
  for (;;) {
    epoll_event events[64];
    const int ready = ::epoll_wait(epoll.get(), events, 64, -1);
    for (int i = 0; i < ready; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_.get()) return;
      if (fd != listener_.get()) {
        if (!echo(fd)) clients.erase(fd);
      } else if (auto client = testing::accept_next(fd)) {
        watch(epoll.get(), client.get());
        const int number = client.get();
        clients.emplace(number, std::move(client));
      }
    }
  }
}

}  // namespace ddprun::bench
