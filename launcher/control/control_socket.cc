#include "launcher/control/control_socket.h"

#include <sstream>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include "common/error.h"
#include "common/log.h"
#include "launcher/control/runtime_folder.h"
#include "rendezvous/store/local_socket.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;

constexpr std::size_t max_request = 1024;
constexpr std::size_t max_connections = 64;  // further ones wait in the backlog

struct Connection {
  explicit Connection(stream_protocol::socket connected) : socket(std::move(connected)) {}
  stream_protocol::socket socket;
  std::string request;
  std::string answer;
  bool awaits_end = false;
};
using ConnectionPtr = std::shared_ptr<Connection>;

// Root's sockets count, too. The folder keeps other users out already, unless its mode has been changed.
bool is_of_this_user(stream_protocol::socket& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace

class ControlSocket::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, Handlers handlers) : acceptor_(loop), handlers_(std::move(handlers)) {}

  void open(const Environment& environment) {
    try {
      const auto folder = own_runtime_folder(environment);
      agent_sockets(folder);  // removes the sockets of agents that were killed
      listen(folder / own_socket_name());
    } catch (const Error& e) {
      log::warn("ddprun status and ddprun stop will not find this agent: {}", e.what());
    }
  }

  const std::filesystem::path& path() const { return path_; }

  void announce_end(const std::string& answer) {
    const auto line = answer + "\n";
    for (const auto& connection : connections_) {
      if (!connection->awaits_end) continue;
      error_code ignored;
      connection->socket.non_blocking(true, ignored);
      connection->socket.send(asio::buffer(line), 0, ignored);
    }
  }

  void close() {
    error_code ignored;
    acceptor_.close(ignored);
    for (const auto& connection : connections_) connection->socket.close(ignored);
    connections_.clear();
    handlers_ = {};
    if (!path_.empty()) ::unlink(path_.c_str());
  }

 private:
  // The socket gets its name once it accepts connections: one that refuses them counts as a dead agent's.
  void listen(const std::filesystem::path& path) {
    auto unnamed = path;
    unnamed.replace_extension(".new");
    std::error_code ignored;
    std::filesystem::remove(unnamed, ignored);
    try {
      acceptor_.open();
      acceptor_.bind(unnamed.string());
      acceptor_.listen();
      std::filesystem::rename(unnamed, path);
    } catch (const std::system_error& e) {
      throw make_error(Errc::io, "cannot listen at {}: {}", path.string(), e.code().message());
    } catch (const boost::system::system_error& e) {
      throw make_error(Errc::io, "cannot listen at {}: {}", path.string(), e.code().message());
    }
    path_ = path;
    accept();
  }

  void accept() {
    acceptor_.async_accept([self = shared_from_this()](error_code failure, stream_protocol::socket socket) {
      if (failure == asio::error::operation_aborted || !self->acceptor_.is_open()) return;
      if (!failure && is_of_this_user(socket)) self->read(std::make_shared<Connection>(std::move(socket)));
      if (self->connections_.size() < max_connections) self->accept();
    });
  }

  void read(const ConnectionPtr& connection) {
    connections_.push_back(connection);
    asio::async_read_until(connection->socket, asio::dynamic_buffer(connection->request, max_request), '\n',
                           [self = shared_from_this(), connection](error_code failure, std::size_t size) {
                             if (failure || !self->handlers_.status) return self->drop(connection);
                             const auto rest = connection->request.substr(size);
                             self->handle(connection, connection->request.substr(0, size - 1), rest);
                           });
  }

  void handle(const ConnectionPtr& connection, const std::string& request, const std::string& rest) {
    std::istringstream words(request);
    std::string verb;
    words >> verb;
    if (verb == "attach") return attach(connection, words);
    if (verb == rendezvous::store_request) return open_store(connection, words, rest);
    if (verb == "signal") return send_signal(connection, words);
    constexpr std::string_view stop = "stop ";
    const bool is_stop = request.starts_with(stop);
    const bool is_view = request == "view";
    if (request == "end") return await_end(connection);
    if (!is_stop && !is_view && request != "status") return drop(connection);
    answer(connection, is_view ? handlers_.view() : handlers_.status(), is_stop);
    if (is_stop) handlers_.stop(request.substr(stop.size()));
  }

  void attach(const ConnectionPtr& connection, std::istringstream& words) {
    int rank = 0;
    if (!(words >> rank)) return drop(connection);
    handlers_.attach(rank, hand_over(connection));
  }

  void open_store(const ConnectionPtr& connection, std::istringstream& words, const std::string& sent) {
    std::uint16_t port = 0;
    if (!(words >> port)) return drop(connection);
    handlers_.store(port, hand_over(connection), sent);
  }

  UniqueFd hand_over(const ConnectionPtr& connection) {
    UniqueFd released(connection->socket.release());
    drop(connection);
    return released;
  }

  void send_signal(const ConnectionPtr& connection, std::istringstream& words) {
    int rank = 0, signal_number = 0;
    std::string requester;
    if (!(words >> rank >> signal_number >> std::ws) || !std::getline(words, requester)) return drop(connection);
    handlers_.signal(rank, signal_number, requester, [weak = weak_from_this(), connection](const std::string& problem) {
      if (const auto self = weak.lock()) self->answer(connection, problem);
    });
  }

  void answer(const ConnectionPtr& connection, const std::string& text, bool stays_open = false) {
    connection->answer = text + "\n";
    asio::async_write(connection->socket, asio::buffer(connection->answer),
                      [self = shared_from_this(), connection, stays_open](error_code failure, std::size_t) {
                        if (failure || !stays_open) self->drop(connection);
                      });
  }

  // Nothing more is read except the end of a client's connection.
  void await_end(const ConnectionPtr& connection) {
    connection->awaits_end = true;
    connection->request.resize(1);
    connection->socket.async_read_some(
        asio::buffer(connection->request),
        [self = shared_from_this(), connection](error_code, std::size_t) { self->drop(connection); });
  }

  void drop(const ConnectionPtr& connection) {
    const bool was_full = connections_.size() >= max_connections;
    std::erase(connections_, connection);
    error_code ignored;
    connection->socket.close(ignored);
    if (was_full && acceptor_.is_open()) accept();
  }

  stream_protocol::acceptor acceptor_;
  Handlers handlers_;
  std::filesystem::path path_;
  std::vector<ConnectionPtr> connections_;
};

ControlSocket::ControlSocket(asio::io_context& loop, const Environment& environment, Handlers handlers)
    : impl_(std::make_shared<Impl>(loop, std::move(handlers))) {
  impl_->open(environment);
}

void ControlSocket::announce_end(const std::string& answer) {
  impl_->announce_end(answer);
}

const std::filesystem::path& ControlSocket::path() const {
  return impl_->path();
}

ControlSocket::~ControlSocket() {
  impl_->close();
}

}  // namespace ddprun
