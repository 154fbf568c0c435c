#include "tests/bench/load.h"

#include <cerrno>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/deadline.h"
#include "common/error.h"
#include "rendezvous/store/tcp_socket.h"

namespace ddprun::bench {
namespace {

constexpr int patience_ms = 10'000;
constexpr int events_a_turn = 256;

UniqueFd connect_and_greet(const LoadOptions& options) {
  const auto deadline = Deadline::in(std::chrono::milliseconds(patience_ms));
  auto fd = rendezvous::connect_once(options.host, options.port, deadline);
  rendezvous::send_all(fd.get(), options.greeting, deadline);
  return fd;
}

}  // namespace

void LoadResult::add(const LoadResult& other) {
  operations += other.operations;
  elapsed += other.elapsed;
  latencies.add(other.latencies);
}

Load::Load(const LoadOptions& options) : notifier_(connect_and_greet(options)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (int i = 0; i < options.connections; ++i) {
    clients_.push_back({.fd = connect_and_greet(options)});
    epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<std::uint32_t>(i)}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, clients_.back().fd.get(), &event) != 0)
      throw make_error(Errc::io, "epoll_ctl failed: {}", errno_text(errno));
  }
}

void Load::send(Client& client, const Step& step) {
  client.received = 0;
  client.started = Clock::now();
  rendezvous::send_all(step.by_notifier ? notifier_.get() : client.fd.get(), step.request,
                       Deadline::in(std::chrono::milliseconds(patience_ms)));
}

bool Load::advance(Client& client, const Operation& operation) {
  char buffer[16384];
  const auto n = ::recv(client.fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) throw Error(Errc::connection_lost, "the server closed a connection");
  const Step& step = operation[client.step];
  client.received += static_cast<std::size_t>(n);
  const bool line_ended = buffer[n - 1] == '\n';
  if (step.reply_bytes == 0 ? !line_ended : client.received < step.reply_bytes) return false;
  if (step.timed) client.timed += Clock::now() - client.started;
  if (++client.step == operation.size()) return true;
  send(client, operation[client.step]);
  return false;
}

void Load::run_once(int connection, const Operation& operation) {
  auto& client = clients_[static_cast<std::size_t>(connection)];
  client.step = 0;
  send(client, operation[0]);
  epoll_event event{};
  while (::epoll_wait(epoll_.get(), &event, 1, patience_ms) > 0)
    if (advance(client, operation)) return;
  throw Error(Errc::timeout, "the server does not answer");
}

LoadResult Load::run(const std::vector<Operation>& operations, std::chrono::duration<double> duration) {
  LoadResult result;
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(duration);
  const auto begin = [&](std::size_t i) {
    clients_[i].step = 0;
    clients_[i].timed = {};
    send(clients_[i], operations[i][0]);
  };
  for (std::size_t i = 0; i < clients_.size(); ++i) begin(i);
  epoll_event events[events_a_turn];
  for (auto under_way = clients_.size(); under_way > 0;) {
    const int ready = ::epoll_wait(epoll_.get(), events, events_a_turn, patience_ms);
    if (ready <= 0 && errno != EINTR) throw Error(Errc::timeout, "the server does not answer");
    for (int e = 0; e < ready; ++e) {
      const std::size_t i = events[e].data.u32;
      if (!advance(clients_[i], operations[i])) continue;
      result.latencies.add(clients_[i].timed);
      if (Clock::now() < end)
        begin(i);
      else
        --under_way;
    }
  }
  result.elapsed = Clock::now() - start;
  result.operations = result.latencies.count();
  return result;
}

LoadResult Load::stream(const std::vector<std::string>& requests, std::chrono::duration<double> duration,
                        const Step& last) {
  LoadResult result;
  const auto start = Clock::now();
  const auto deadline = Deadline::in(std::chrono::milliseconds(patience_ms));
  constexpr int at_a_time = 64;  // requests of one connection, so that reading the clock costs little
  while (Clock::now() - start < duration) {
    for (std::size_t i = 0; i < clients_.size(); ++i)
      for (int n = 0; n < at_a_time; ++n) rendezvous::send_all(clients_[i].fd.get(), requests[i], deadline);
    result.operations += clients_.size() * at_a_time;
  }
  for (std::size_t i = 0; i < clients_.size(); ++i) run_once(static_cast<int>(i), {last});
  result.elapsed = Clock::now() - start;
  return result;
}

}  // namespace ddprun::bench
