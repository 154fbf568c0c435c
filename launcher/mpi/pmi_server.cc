#include "launcher/mpi/pmi_server.h"

#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sys/socket.h>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/error.h"
#include "common/log.h"
#include "common/unique_fd.h"
#include "launcher/mpi/pmi_exchange.h"
#include "launcher/mpi/pmi_state.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

PmiJob job_of(const Round& round) {
  std::vector<int> nprocs;
  for (const auto& member : round.members) nprocs.push_back(member.nproc);
  return {.name = pmi_job_name(round.members.front().node_id, round.generation),
          .process_mapping = pmi_process_mapping(nprocs),
          .size = round.world_size,
          .local_size = nprocs.at(static_cast<std::size_t>(round.self))};
}

}  // namespace

struct PmiServer::Impl : std::enable_shared_from_this<Impl> {
  struct Connection {
    asio::posix::stream_descriptor own;
    UniqueFd workers;
  };

  Impl(asio::io_context& loop, const Round& round, Handlers handlers_)
      : state(job_of(round)),
        first_rank(round.members.at(static_cast<std::size_t>(round.self)).first_rank),
        handlers(std::move(handlers_)) {
    const int count = round.members.at(static_cast<std::size_t>(round.self)).nproc;
    for (int i = 0; i < count; ++i) connections.push_back(connect(loop));
    if (round.members.size() > 1)
      exchange.emplace(loop, round,
                       [this](const PmiPairs& pairs, const std::string& error) { exchanged(pairs, error); });
  }

  static Connection connect(asio::io_context& loop) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw make_error(Errc::io, "cannot make a socket for PMI: {}", errno_text(errno));
    UniqueFd workers(ends[1]);
    return {asio::posix::stream_descriptor(loop, ends[0]), std::move(workers)};
  }

  Connection& connection(int local_rank) { return connections.at(static_cast<std::size_t>(local_rank)); }

  void wait(int local_rank) {
    connection(local_rank)
        .own.async_wait(asio::posix::stream_descriptor::wait_read,
                        [self = weak_from_this(), local_rank](boost::system::error_code failure) {
                          if (const auto alive = self.lock(); alive && !failure) alive->readable(local_rank);
                        });
  }

  void readable(int local_rank) {
    const bool more = read(local_rank);
    handlers.waiting();
    if (more) wait(local_rank);
  }

  // Reads all that the worker has sent; returns false at the end of the connection.
  bool read(int local_rank) {
    char block[4096];
    while (connection(local_rank).own.is_open()) {
      const auto got = ::recv(connection(local_rank).own.native_handle(), block, sizeof(block), MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno == EAGAIN;
      if (got == 0) return false;
      perform(state.received(local_rank, {block, static_cast<std::size_t>(got)}));
    }
    return false;
  }

  void perform(const PmiActions& actions) {
    for (const auto& reply : actions.replies) send(reply);
    for (const auto& [local_rank, exit_code] : actions.aborts) handlers.aborted(local_rank, exit_code);
    for (const auto& [local_rank, what] : actions.violations)
      give_up(local_rank, fmt::format("it sent {}, which PMI-1 does not have", what));
    if (!actions.fence) return;
    if (exchange) {
      exchange->exchange(actions.fence->pairs);
    } else {
      perform(state.fence_done({}));
    }
  }

  // A worker waits for each reply, so the socket has space for it.
  void send(const PmiReply& reply) {
    auto& own = connection(reply.local_rank).own;
    if (!own.is_open()) return;
    const auto sent = ::send(own.native_handle(), reply.text.data(), reply.text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(reply.text.size()) || (sent < 0 && errno == EPIPE)) return;
    give_up(reply.local_rank, "it does not read the replies");
  }

  void exchanged(const PmiPairs& pairs, const std::string& error) {
    if (error.empty()) return perform(state.fence_done(pairs));
    log::error("a barrier of MPI processes cannot end: {}", error);
    for (auto& each : connections) close(each);
  }

  void give_up(int local_rank, const std::string& why) {
    log::error("rank {} gets no more of PMI: {}", first_rank + local_rank, why);
    close(connection(local_rank));
  }

  static void close(Connection& connection) {
    boost::system::error_code ignored;
    connection.own.close(ignored);
  }

  PmiState state;
  const int first_rank;
  const Handlers handlers;
  std::vector<Connection> connections;
  std::optional<PmiExchange> exchange;  // set where there are other nodes
};

PmiServer::PmiServer(asio::io_context& loop, const Round& round, Handlers handlers)
    : impl_(std::make_shared<Impl>(loop, round, std::move(handlers))) {
  for (std::size_t i = 0; i < impl_->connections.size(); ++i) impl_->wait(static_cast<int>(i));
}

PmiServer::~PmiServer() = default;

int PmiServer::worker_end(int local_rank) const {
  return impl_->connection(local_rank).workers.get();
}

void PmiServer::started(int local_rank) {
  impl_->connection(local_rank).workers.reset();
}

std::string PmiServer::complaint(int local_rank) {
  impl_->read(local_rank);
  return impl_->state.complaint(local_rank);
}

void PmiServer::ended() {
  if (impl_->exchange) impl_->exchange->leave();
}

}  // namespace ddprun
