#include "launcher/attach/attached_clients.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "common/deadline.h"
#include "launcher/attach/attach_protocol.h"
#include "launcher/attach/file_follower.h"
#include "launcher/attach/follower_queue.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;
using Kind = AttachFrame::Kind;

// The interval at which files are read, while a client follows them.
constexpr std::chrono::milliseconds file_interval{100};
// The interval at which output is sent to followers on other nodes, a window at a time: a rank that writes without end
// keeps neither the agents nor the rendezvous server busy.
constexpr std::chrono::milliseconds relay_interval{20};
// The time that a client may take to read the rest at the end of the job.
constexpr std::chrono::milliseconds end_timeout{500};

struct FollowedFile {
  UnseenStream from;
  FileFollower file;
};

// A connection of a client of this node.
struct Connection {
  explicit Connection(stream_protocol::socket connected) : socket(std::move(connected)) {}
  stream_protocol::socket socket;
  std::string unsent;    // of frames taken from the queue
  bool waiting = false;  // the socket is not writable; waiting for it
};

// A follower on another node.
struct RemoteFollower {
  std::uint64_t number = 0;  // the server's
  FollowerWindow window;
  bool rests = false;  // until the next interval
};

// A rank of another node that a client of this one follows.
struct RemoteRank {
  std::uint64_t number = 0;
  std::size_t untaken = 0;  // bytes that the agent there does not know to be taken
};

struct Client {
  Client(int followed, Connection connected) : rank(followed), queue(followed), connection(std::move(connected)) {}
  Client(int followed, std::uint64_t number)
      : rank(followed), queue(followed), remote_follower(RemoteFollower{.number = number}) {}

  int rank;
  FollowerQueue queue;
  std::optional<Connection> connection;           // set for a client of this node
  std::optional<RemoteFollower> remote_follower;  // set for a follower on another node
  std::optional<RemoteRank> remote;               // unset: the rank is on this node
  std::vector<FollowedFile> files;
};
using ClientPtr = std::shared_ptr<Client>;

Kind kind_of(Console::Stream stream) {
  return stream == Console::Stream::out ? Kind::out : Kind::err;
}

RankOutput::Kind relayed_kind(Kind kind) {
  switch (kind) {
    case Kind::out:
      return RankOutput::Kind::out;
    case Kind::err:
      return RankOutput::Kind::err;
    case Kind::refused:
      return RankOutput::Kind::refused;
    default:
      return RankOutput::Kind::notice;
  }
}

Kind kind_of(RankOutput::Kind kind) {
  switch (kind) {
    case RankOutput::Kind::out:
      return Kind::out;
    case RankOutput::Kind::err:
      return Kind::err;
    default:
      return Kind::notice;
  }
}

bool is_file(const UnseenStream& unseen) {
  return !unseen.file.empty() && unseen.file != "/dev/null";
}

std::string unseen_text(int rank, const UnseenStream& unseen) {
  const auto* name = unseen.stream == Console::Stream::out ? "standard output" : "standard error";
  return fmt::format("rank {}'s {} is not shown: it is {}", rank, name,
                     unseen.file.empty() ? "the terminal on which ddprun runs" : unseen.file.string());
}

std::string full_text() {
  return fmt::format("{} clients are attached already", AttachedClients::max_clients);
}

}  // namespace

class AttachedClients::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, Handlers handlers)
      : loop_(loop), timer_(loop), relay_timer_(loop), handlers_(std::move(handlers)) {}

  void feed(int rank, Console::Stream stream, std::string_view bytes) {
    recent_.feed(rank, stream, bytes);
    for (const auto& client : followers_of(rank)) queue(client, kind_of(stream), bytes);
  }

  void attach(int rank, UniqueFd descriptor) {
    error_code failure;
    stream_protocol::socket socket(loop_);
    socket.assign(stream_protocol(), descriptor.get(), failure);
    if (failure) return;
    descriptor.release();
    const auto client = std::make_shared<Client>(rank, Connection(std::move(socket)));
    const bool full = clients_.size() >= max_clients;
    clients_.push_back(client);
    notice_close(client);
    if (full) return refuse(client, full_text());
    const auto refusal = handlers_.refusal(rank);
    if (refusal.empty()) return begin(client, recent_.last(rank));
    follow_elsewhere(client, refusal, false);
  }

  void received(const RelayMessage& message) {
    if (const auto* request = std::get_if<FollowRank>(&message)) begin_for(*request);
    if (const auto* request = std::get_if<UnfollowRank>(&message)) end_for(*request);
    if (const auto* output = std::get_if<RankOutput>(&message)) show(*output);
    if (const auto* taken = std::get_if<OutputTaken>(&message)) go_on(*taken);
  }

  void session_began() {
    std::erase_if(clients_, [](const auto& client) { return client->remote_follower.has_value(); });
    for (const auto& client : std::vector(clients_)) {
      if (!client->remote) continue;
      client->remote->untaken = 0;
      handlers_.relay(FollowRank{.number = client->remote->number, .rank = client->rank, .again = true});
    }
  }

  void session_lost(const std::string& reason) {
    std::erase_if(clients_, [](const auto& client) { return client->remote_follower.has_value(); });
    for (const auto& client : std::vector(clients_))
      if (client->remote) queue(client, Kind::notice, reason);
  }

  void round_started() {
    recent_.begin_round();
    workers_started();
  }

  void round_changed(int by) {
    recent_.renumber(by);
    workers_started();
  }

  void workers_started() {
    for (const auto& client : std::vector(clients_)) {
      if (client->queue.closed() || client->remote) continue;
      const auto refusal = handlers_.refusal(client->rank);
      if (refusal.empty())
        follow_files(client);
      else if (client->remote_follower)
        drop(client);  // the server sends its follower to the other node
      else
        move_elsewhere(client, refusal);
    }
  }

  void flush() {
    for (const auto& client : std::vector(clients_)) {
      if (!client->remote_follower) continue;
      for (read_files(client); !client->queue.empty(); read_files(client)) {
        send_window(*client, RelayLimits::final_window);
        if (!client->queue.empty()) break;
      }
    }
  }

  void finish(int exit_code) {
    timer_.cancel();
    relay_timer_.cancel();
    const auto deadline = Deadline::in(end_timeout);
    for (const auto& client : std::exchange(clients_, {})) {
      if (!client->connection) continue;
      for (read_files(client); !sent_all(*client); read_files(client)) {
        send_rest(*client, deadline);
        if (!sent_all(*client)) break;
      }
      client->queue.add_last(Kind::end, std::to_string(exit_code));
      send_rest(*client, deadline);
      close(*client);
    }
  }

  void close_all() {
    timer_.cancel();
    relay_timer_.cancel();
    for (const auto& client : std::exchange(clients_, {})) close(*client);
  }

 private:
  // ---- clients, and ranks of this node

  std::vector<ClientPtr> followers_of(int rank) const {
    std::vector<ClientPtr> found;
    for (const auto& client : clients_)
      if (client->rank == rank && !client->remote) found.push_back(client);
    return found;
  }

  void begin(const ClientPtr& client, const std::vector<OutputPiece>& earlier) {
    for (const auto& piece : earlier) client->queue.add(kind_of(piece.stream), piece.bytes);
    for (const auto& unseen : handlers_.unseen(client->rank))
      if (!is_file(unseen)) client->queue.add(Kind::notice, unseen_text(client->rank, unseen));
    send(client);
    follow_files(client);
  }

  void queue(const ClientPtr& client, Kind kind, std::string_view content) {
    client->queue.add(kind, content);
    send(client);
  }

  void refuse(const ClientPtr& client, const std::string& reason) {
    client->files.clear();
    client->remote.reset();
    client->queue.add_last(Kind::refused, reason);
    send(client);
  }

  void send(const ClientPtr& client) {
    const bool works = client->connection ? send_here(client) : send_elsewhere(*client);
    const bool done = client->queue.closed() && sent_all(*client);
    if (!works || done) drop(client);
  }

  static bool sent_all(const Client& client) {
    return client.queue.empty() && (!client.connection || client.connection->unsent.empty());
  }

  void drop(const ClientPtr& client) {
    if (std::erase(clients_, client) == 0) return;
    if (client->remote) handlers_.relay(UnfollowRank{client->remote->number});
    close(*client);
  }

  // ---- connections

  // Returns false if the connection has failed.
  bool send_here(const ClientPtr& client) {
    auto& connection = *client->connection;
    if (connection.waiting) return true;
    if (!send_some(*client)) return false;
    if (sent_all(*client)) {
      announce_taken(*client);
      return true;
    }
    connection.waiting = true;
    connection.socket.async_wait(stream_protocol::socket::wait_write,
                                 [self = shared_from_this(), client](error_code failure) {
                                   client->connection->waiting = false;
                                   if (!failure) self->send(client);
                                 });
    return true;
  }

  // Returns false if the connection has failed.
  static bool send_some(Client& client) {
    auto& unsent = client.connection->unsent;
    const auto socket = client.connection->socket.native_handle();
    for (;;) {
      if (unsent.empty()) {
        const auto frame = client.queue.next();
        if (!frame) return true;
        unsent = encode_frame(frame->kind, frame->content);
      }
      const auto sent = ::send(socket, unsent.data(), unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN;
      unsent.erase(0, static_cast<std::size_t>(sent));
    }
  }

  static void send_rest(Client& client, Deadline deadline) {
    while (send_some(client) && !sent_all(client)) {
      pollfd entry{client.connection->socket.native_handle(), POLLOUT, 0};
      if (::poll(&entry, 1, deadline.poll_timeout_ms()) == 0) return;
    }
  }

  // A client sends nothing, so readable data means the end of its connection.
  void notice_close(const ClientPtr& client) {
    client->connection->socket.async_wait(stream_protocol::socket::wait_read,
                                          [self = shared_from_this(), client](error_code failure) {
                                            if (!failure) self->drop(client);
                                          });
  }

  static void close(Client& client) {
    error_code ignored;
    if (client.connection) client.connection->socket.close(ignored);
  }

  // ---- followers on other nodes

  void begin_for(const FollowRank& request) {
    auto refusal = handlers_.refusal(request.rank);
    if (clients_.size() >= max_clients) refusal = full_text();
    if (!refusal.empty()) {
      handlers_.relay(RankOutput{request.number, RankOutput::Kind::refused, refusal});
      return;
    }
    const auto client = std::make_shared<Client>(request.rank, request.number);
    clients_.push_back(client);
    begin(client, request.again ? recent_.last_of_round(request.rank) : recent_.last(request.rank));
  }

  void end_for(const UnfollowRank& request) {
    std::erase_if(clients_, [&](const auto& client) {
      return client->remote_follower && client->remote_follower->number == request.number;
    });
  }

  void go_on(const OutputTaken& taken) {
    for (const auto& client : std::vector(clients_)) {
      if (!client->remote_follower || client->remote_follower->number != taken.number) continue;
      client->remote_follower->window.taken(taken.bytes);
      send(client);
    }
  }

  // Returns false if there is no way to the follower any more.
  bool send_elsewhere(Client& client) {
    if (client.remote_follower->rests || !may_send(client, RelayLimits::window)) return true;
    client.remote_follower->rests = true;
    wait_for_interval();
    return send_window(client, RelayLimits::window);
  }

  void wait_for_interval() {
    if (std::exchange(waiting_, true)) return;
    relay_timer_.expires_after(relay_interval);
    relay_timer_.async_wait([self = shared_from_this()](error_code failure) {
      self->waiting_ = false;
      if (failure) return;
      for (const auto& client : std::vector(self->clients_)) {
        if (!client->remote_follower) continue;
        client->remote_follower->rests = false;
        self->send(client);
      }
    });
  }

  static bool may_send(Client& client, std::size_t limit) {
    return !client.queue.empty() && client.remote_follower->window.fits(client.queue.next_bytes(), limit);
  }

  bool send_window(Client& client, std::size_t limit) {
    while (may_send(client, limit)) {
      auto frame = client.queue.next();
      const RankOutput output{client.remote_follower->number, relayed_kind(frame->kind), std::move(frame->content)};
      if (!handlers_.relay(output).empty()) return false;
      client.remote_follower->window.sent(output);
    }
    return true;
  }

  // ---- ranks of other nodes

  void follow_elsewhere(const ClientPtr& client, const std::string& reason, bool again) {
    const FollowRank request{.number = ++last_number_, .rank = client->rank, .again = again};
    if (const auto why = handlers_.relay(request); !why.empty())
      return refuse(client, fmt::format("{}, and {}", reason, why));
    client->files.clear();
    client->remote = RemoteRank{request.number};
  }

  void move_elsewhere(const ClientPtr& client, const std::string& reason) {
    read_files(client);
    queue(client, Kind::notice, fmt::format("rank {} has moved to another node", client->rank));
    follow_elsewhere(client, reason, true);
  }

  void show(const RankOutput& output) {
    for (const auto& client : std::vector(clients_)) {
      if (!client->remote || client->remote->number != output.number) continue;
      if (output.kind == RankOutput::Kind::refused) return refuse(client, output.content);
      client->remote->untaken += relayed_bytes(output);
      queue(client, kind_of(output.kind), output.content);
    }
  }

  void announce_taken(Client& client) {
    if (!client.remote || client.remote->untaken == 0) return;
    const auto bytes = std::exchange(client.remote->untaken, 0);
    handlers_.relay(OutputTaken{client.remote->number, static_cast<std::uint32_t>(bytes)});
  }

  // ---- files

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
      while (client->queue.wants_more()) {
        const auto text = followed.file.read_new();
        if (text.empty()) break;
        queue(client, kind_of(followed.from.stream), text);
      }
  }

  asio::io_context& loop_;
  asio::steady_timer timer_;
  asio::steady_timer relay_timer_;
  Handlers handlers_;
  RecentOutput recent_;
  std::vector<ClientPtr> clients_;
  std::uint64_t last_number_ = 0;
  bool looking_ = false;  // timer_ runs
  bool waiting_ = false;  // relay_timer_ runs
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

void AttachedClients::received(const RelayMessage& message) {
  impl_->received(message);
}

void AttachedClients::session_began() {
  impl_->session_began();
}

void AttachedClients::session_lost(const std::string& reason) {
  impl_->session_lost(reason);
}

void AttachedClients::round_started() {
  impl_->round_started();
}

void AttachedClients::round_changed(int by) {
  impl_->round_changed(by);
}

void AttachedClients::worker_replaced() {
  impl_->workers_started();
}

void AttachedClients::flush() {
  impl_->flush();
}

void AttachedClients::finish(int exit_code) {
  impl_->finish(exit_code);
}

}  // namespace ddprun
