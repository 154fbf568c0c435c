#include "ddprun/launcher/attach/attached_clients.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "ddprun/common/deadline.h"
#include "ddprun/launcher/attach/attach_protocol.h"
#include "ddprun/launcher/attach/file_follower.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;
using Kind = AttachFrame::Kind;

// The interval at which files are read, while a client follows them.
constexpr std::chrono::milliseconds file_interval{100};
// The time that a client may take to read the rest at the end of the job.
constexpr std::chrono::milliseconds end_timeout{500};

struct FollowedFile {
  UnseenStream from;
  FileFollower file;
};

struct Client {
  Client(int followed, stream_protocol::socket connected) : rank(followed), socket(std::move(connected)) {}
  int rank;
  stream_protocol::socket socket;
  std::string queue;        // not sent yet
  std::size_t skipped = 0;  // bytes of output that did not fit into it
  bool waiting = false;     // the socket is not writable; waiting for it
  bool closing = false;     // close once the queue is sent
  std::vector<FollowedFile> files;
};
using ClientPtr = std::shared_ptr<Client>;

Kind kind_of(Console::Stream stream) {
  return stream == Console::Stream::out ? Kind::out : Kind::err;
}

bool is_file(const UnseenStream& unseen) {
  return !unseen.file.empty() && unseen.file != "/dev/null";
}

std::string unseen_text(int rank, const UnseenStream& unseen) {
  const auto* name = unseen.stream == Console::Stream::out ? "standard output" : "standard error";
  return fmt::format("rank {}'s {} is not shown: it is {}", rank, name,
                     unseen.file.empty() ? "the terminal on which ddprun runs" : unseen.file.string());
}

}  // namespace

class AttachedClients::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, Handlers handlers) : loop_(loop), timer_(loop), handlers_(std::move(handlers)) {}

  void feed(int rank, Console::Stream stream, std::string_view bytes) {
    recent_.feed(rank, stream, bytes);
    for (const auto& client : clients_of(rank)) queue(client, kind_of(stream), bytes);
  }

  void attach(int rank, UniqueFd connection) {
    error_code failure;
    stream_protocol::socket socket(loop_);
    socket.assign(stream_protocol(), connection.get(), failure);
    if (failure) return;
    connection.release();
    const auto client = std::make_shared<Client>(rank, std::move(socket));
    clients_.push_back(client);
    auto refusal = handlers_.refusal(rank);
    if (refusal.empty() && clients_.size() > max_clients)
      refusal = fmt::format("{} clients are attached already", max_clients);
    if (!refusal.empty()) return refuse(client, refusal);
    for (const auto& piece : recent_.last(rank)) queue(client, kind_of(piece.stream), piece.bytes);
    for (const auto& unseen : handlers_.unseen(rank))
      if (!is_file(unseen)) queue(client, Kind::notice, unseen_text(rank, unseen));
    follow_files(client);
    notice_close(client);
  }

  void workers_started() {
    for (const auto& client : std::vector(clients_)) {
      if (client->closing) continue;
      const auto refusal = handlers_.refusal(client->rank);
      if (refusal.empty())
        follow_files(client);
      else
        refuse(client, refusal);
    }
  }

  void finish(int exit_code) {
    timer_.cancel();
    const auto deadline = Deadline::in(end_timeout);
    for (const auto& client : std::exchange(clients_, {})) {
      for (read_files(client); !client->queue.empty(); read_files(client)) {
        send_rest(*client, deadline);
        if (!client->queue.empty()) break;
      }
      tell_skipped(*client);
      if (!client->closing) client->queue += encode_frame(Kind::end, std::to_string(exit_code));
      send_rest(*client, deadline);
      close(*client);
    }
  }

  void close_all() {
    timer_.cancel();
    for (const auto& client : std::exchange(clients_, {})) close(*client);
  }

 private:
  std::vector<ClientPtr> clients_of(int rank) const {
    std::vector<ClientPtr> found;
    for (const auto& client : clients_)
      if (client->rank == rank && !client->closing) found.push_back(client);
    return found;
  }

  void queue(const ClientPtr& client, Kind kind, std::string_view content) {
    if (client->queue.size() + content.size() > max_queued) {
      client->skipped += content.size();
      return;
    }
    tell_skipped(*client);
    client->queue += encode_frame(kind, content);
    send(client);
  }

  static void tell_skipped(Client& client) {
    if (client.skipped == 0) return;
    client.queue += encode_frame(
        Kind::notice, fmt::format("{} bytes of rank {}'s output are left out here: they were not read in time",
                                  std::exchange(client.skipped, 0), client.rank));
  }

  void refuse(const ClientPtr& client, const std::string& reason) {
    client->files.clear();
    client->queue += encode_frame(Kind::refused, reason);
    client->closing = true;
    send(client);
  }

  void send(const ClientPtr& client) {
    if (client->waiting) return;
    if (!send_some(*client)) return drop(client);
    if (client->queue.empty()) {
      if (client->closing) drop(client);
      return;
    }
    client->waiting = true;
    client->socket.async_wait(stream_protocol::socket::wait_write,
                              [self = shared_from_this(), client](error_code failure) {
                                client->waiting = false;
                                if (!failure) self->send(client);
                              });
  }

  // Returns false if the connection has failed.
  static bool send_some(Client& client) {
    while (!client.queue.empty()) {
      const auto sent =
          ::send(client.socket.native_handle(), client.queue.data(), client.queue.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN;
      client.queue.erase(0, static_cast<std::size_t>(sent));
    }
    return true;
  }

  static void send_rest(Client& client, Deadline deadline) {
    while (send_some(client) && !client.queue.empty()) {
      pollfd entry{client.socket.native_handle(), POLLOUT, 0};
      if (::poll(&entry, 1, deadline.poll_timeout_ms()) == 0) return;
    }
  }

  // A client sends nothing, so readable data means the end of its connection.
  void notice_close(const ClientPtr& client) {
    client->socket.async_wait(stream_protocol::socket::wait_read,
                              [self = shared_from_this(), client](error_code failure) {
                                if (!failure) self->drop(client);
                              });
  }

  // Reads the rest of the files that it has, since a worker that was started in another's place has new ones.
  void follow_files(const ClientPtr& client) {
    read_files(client);
    std::vector<FollowedFile> files;
    for (const auto& unseen : handlers_.unseen(client->rank)) {
      if (!is_file(unseen)) continue;
      const auto known = std::ranges::find(client->files, unseen.file, [](const auto& each) { return each.from.file; });
      files.push_back(known == client->files.end()
                          ? FollowedFile{unseen, FileFollower(unseen.file, RecentOutput::max_bytes)}
                          : std::move(*known));
    }
    client->files = std::move(files);
    if (client->files.empty()) return;
    read_files(client);
    look_at_files();
  }

  void look_at_files() {
    if (std::exchange(looking_, true)) return;
    timer_.expires_after(file_interval);
    timer_.async_wait([self = shared_from_this()](error_code failure) {
      self->looking_ = false;
      if (failure) return;
      bool any = false;
      for (const auto& client : std::vector(self->clients_)) {
        self->read_files(client);
        any |= !client->files.empty();
      }
      if (any) self->look_at_files();
    });
  }

  void read_files(const ClientPtr& client) {
    for (auto& followed : client->files)
      while (client->queue.size() < max_queued / 2) {  // the file keeps what a slow client has not read
        const auto text = followed.file.read_new();
        if (text.empty()) break;
        queue(client, kind_of(followed.from.stream), text);
      }
  }

  void drop(const ClientPtr& client) {
    std::erase(clients_, client);
    close(*client);
  }

  static void close(Client& client) {
    error_code ignored;
    client.socket.close(ignored);
  }

  asio::io_context& loop_;
  asio::steady_timer timer_;
  Handlers handlers_;
  RecentOutput recent_;
  std::vector<ClientPtr> clients_;
  bool looking_ = false;
};

AttachedClients::AttachedClients(asio::io_context& loop, Handlers handlers)
    : impl_(std::make_shared<Impl>(loop, std::move(handlers))) {}

AttachedClients::~AttachedClients() {
  impl_->close_all();
}

void AttachedClients::feed(int rank, Console::Stream stream, std::string_view bytes) {
  impl_->feed(rank, stream, bytes);
}

void AttachedClients::attach(int rank, UniqueFd connection) {
  impl_->attach(rank, std::move(connection));
}

void AttachedClients::workers_started() {
  impl_->workers_started();
}

void AttachedClients::finish(int exit_code) {
  impl_->finish(exit_code);
}

}  // namespace ddprun
