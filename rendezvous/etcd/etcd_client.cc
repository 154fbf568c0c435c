#include "rendezvous/etcd/etcd_client.h"

#include <array>
#include <netinet/tcp.h>
#include <random>
#include <sys/socket.h>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "common/error.h"
#include "common/host_port.h"
#include "common/printable.h"
#include "common/random.h"
#include "common/timer.h"
#include "rendezvous/etcd/etcd_json.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/store/awaited.h"
#include "rendezvous/store/backoff.h"
#include "rendezvous/store/host_lookup.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace json = boost::json;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr std::size_t largest_answer = std::size_t{64} << 20;

// The result of one attempt at one server: an HTTP status with its body, or the problem if status is 0.
struct Reply {
  unsigned status = 0;
  std::string body;
  std::string problem;
};

// gRPC status codes, which the gateway passes on.
enum class Grpc {
  invalid_argument = 3,
  not_found = 5,
  permission_denied = 7,
  unimplemented = 12,
  unauthenticated = 16
};

}  // namespace

std::string EtcdServers::text() const {
  std::string text;
  for (const auto& one : endpoints) text += (text.empty() ? "" : ",") + format_host_port(one.host, one.port);
  return text;
}

class EtcdClient::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, EtcdServers servers)
      : servers_(std::move(servers)), loop_(loop), socket_(loop), lookup_(loop), watchdog_(loop), pause_(loop) {}

  asio::awaitable<json::value> call(std::string path, json::object body, std::string about, Deadline deadline) {
    const auto self = shared_from_this();
    const std::string text = json::serialize(body);
    const auto began = Deadline::Clock::now();
    Backoff backoff{.cap = milliseconds(250)};
    std::string problem;
    for (std::size_t tries = 1;; ++tries) {
      const bool reused = connected_;
      const std::string server = server_text();
      Reply reply = co_await attempt(path, text, deadline);
      if (closed_) throw make_error(Errc::aborted, "the connection to etcd was closed");
      if (reply.status == 200) co_return parse(reply.body, server);
      if (reply.status != 0) reply.problem = refusal(reply, server, path, about);
      // The server may have closed an idle connection: retry it.
      if (reply.status == 0 && reused && !timed_out_) continue;
      // If the deadline cut this attempt short, the cause of the previous one is more useful.
      if (problem.empty() || !deadline.expired()) problem = server + ": " + reply.problem;
      if (deadline.expired()) throw unreachable(path, about, began, problem);
      use_next_server();
      if (tries % servers_.endpoints.size() != 0) continue;
      pause_.expires_at(*earlier(Deadline::in(backoff.next(random_)), deadline).when());
      co_await pause_.async_wait(awaited);
    }
  }

  asio::awaitable<std::string> listen(std::string path, json::object body, Listener listener) {
    const auto self = shared_from_this();
    const std::string text = json::serialize(body);
    disconnect();
    set_watchdog(Deadline::in(servers_.attempt_timeout));
    std::string problem = co_await listen_once(path, text, listener);
    watchdog_.cancel();
    disconnect();
    co_return timed_out_ ? no_answer() : problem;
  }

  void set_attempt_timeout(milliseconds timeout) { servers_.attempt_timeout = timeout; }

  void use_next_server() {
    current_ = (current_ + 1) % servers_.endpoints.size();
    disconnect();
  }

  void close() {
    closed_ = true;
    disconnect();
    lookup_.cancel();
    pause_.cancel();
  }

  void disconnect() {
    connected_ = false;
    error_code ignored;
    socket_.close(ignored);
  }

  SessionAddresses addresses() const {
    error_code error;
    const auto here = socket_.local_endpoint(error);
    const auto there = error ? here : socket_.remote_endpoint(error);
    if (error) return {};
    return {.peer = here.address().to_string(), .local = there.address().to_string()};
  }

  const EtcdServers& servers() const { return servers_; }

 private:
  const EtcdServers::Endpoint& server() const { return servers_.endpoints[current_]; }
  std::string server_text() const { return format_host_port(server().host, server().port); }
  std::string no_answer() const {
    if (unresolved_) return rendezvous::unanswered_lookup_text(server().host);
    return fmt::format("no answer within {}", duration_text(servers_.attempt_timeout));
  }

  asio::awaitable<Reply> attempt(const std::string& path, const std::string& body, Deadline deadline) {
    set_watchdog(earlier(Deadline::in(servers_.attempt_timeout), deadline));
    Reply reply = co_await exchange(path, body);
    watchdog_.cancel();
    if (reply.status == 0) disconnect();
    if (reply.status == 0 && timed_out_) reply.problem = no_answer();
    co_return reply;
  }

  asio::awaitable<Reply> exchange(const std::string& path, const std::string& body) {
    if (!connected_) {
      if (auto problem = co_await connect(); !problem.empty()) co_return Reply{.problem = std::move(problem)};
    }
    auto request = make_request(path, body);
    if (const auto [error, size] = co_await http::async_write(socket_, request, awaited); error)
      co_return Reply{.problem = error.message()};
    http::response_parser<http::string_body> parser;
    parser.body_limit(largest_answer);
    if (const auto [error, size] = co_await http::async_read(socket_, buffer_, parser, awaited); error)
      co_return Reply{.problem = error.message()};
    if (!parser.keep_alive()) disconnect();
    co_return Reply{.status = parser.get().result_int(), .body = std::move(parser.get().body())};
  }

  asio::awaitable<std::string> listen_once(const std::string& path, const std::string& body, const Listener& listener) {
    if (auto problem = co_await connect(); !problem.empty()) co_return problem;
    auto request = make_request(path, body);
    request.set("Grpc-Metadata-Hasleader", "true");  // a member without a leader then ends the watch
    if (const auto [error, size] = co_await http::async_write(socket_, request, awaited); error)
      co_return error.message();
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    if (const auto [error, size] = co_await http::async_read_header(socket_, buffer_, parser, awaited); error)
      co_return error.message();
    if (parser.get().result_int() != 200) co_return fmt::format("HTTP status {}", parser.get().result_int());
    std::array<char, 16384> chunk;
    std::string line;
    while (!parser.is_done()) {
      parser.get().body().data = chunk.data();
      parser.get().body().size = chunk.size();
      const auto [error, size] = co_await http::async_read_some(socket_, buffer_, parser, awaited);
      if (error && error != http::error::need_buffer) co_return error.message();
      line.append(chunk.data(), chunk.size() - parser.get().body().size);
      if (line.size() > largest_answer) co_return fmt::format("a response of more than {} bytes", largest_answer);
      for (auto end = line.find('\n'); end != std::string::npos; end = line.find('\n')) {
        watchdog_.cancel();  // the stream is open: it may now be idle for any time
        const std::string one = line.substr(0, end);
        line.erase(0, end + 1);
        error_code broken;
        const auto value = json::parse(one, broken);
        if (broken) co_return "a response that is not JSON";
        listener(value);
        if (!connected_) co_return "";
      }
    }
    co_return "the server ended the stream";
  }

  http::request<http::string_body> make_request(const std::string& path, const std::string& body) const {
    http::request<http::string_body> request{http::verb::post, path, 11};
    request.set(http::field::host, server_text());
    request.set(http::field::content_type, "application/json");
    request.body() = body;
    request.prepare_payload();
    return request;
  }

  // Returns the problem; empty on success.
  asio::awaitable<std::string> connect() {
    buffer_.clear();
    socket_ = tcp::socket(loop_);
    const auto addresses = co_await lookup_.resolve(server().host, server().port);
    if (!addresses || timed_out_ || closed_) co_return "no answer";
    if (!addresses->problem.empty()) co_return addresses->problem;
    const auto endpoints = rendezvous::tcp_endpoints(*addresses);
    const auto [failure, endpoint] = co_await asio::async_connect(socket_, endpoints, awaited);
    if (failure) co_return failure.message();
    connected_ = true;
    set_options();
    co_return "";
  }

  // Keep-alive probes, so that a watch ends if its server's host crashed.
  void set_options() {
    const int on = 1, idle = 2, interval = 1, count = 3;
    const int fd = socket_.native_handle();
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  }

  void set_watchdog(Deadline deadline) {
    timed_out_ = unresolved_ = false;
    watchdog_.run_at(*deadline.when(), [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      self->timed_out_ = true;
      self->unresolved_ = self->lookup_.pending();
      self->lookup_.cancel();
      self->disconnect();
    });
  }

  static json::value parse(const std::string& body, const std::string& server) {
    error_code error;
    // The response of a streaming call may end with a line feed.
    json::value value = json::parse(body, error);
    if (error)
      throw make_error(Errc::unsupported, "the server at {} is not etcd v3 with its HTTP gateway: it sent '{}'", server,
                       printable(std::string_view(body).substr(0, 80)));
    return value;
  }

  // Returns the message of a temporary error; throws for a permanent one.
  static std::string refusal(const Reply& reply, const std::string& server, const std::string& path,
                             const std::string& about) {
    error_code error;
    const json::value value = json::parse(reply.body, error);
    const auto* object = error ? nullptr : value.if_object();
    const auto* message = object ? object->if_contains("error") : nullptr;
    if (!message || !message->is_string()) {
      if (reply.status >= 500) return fmt::format("HTTP status {}", reply.status);
      throw make_error(Errc::unsupported,
                       "the server at {} is not etcd v3 (3.4 or newer) with its HTTP gateway: HTTP status {} for {}",
                       server, reply.status, path);
    }
    std::string text(message->get_string());
    switch (static_cast<Grpc>(integer_at(value, "code"))) {
      case Grpc::not_found:
        throw make_error(Errc::peer_lost, "etcd at {}: {} ({})", server, text, about);
      case Grpc::unimplemented:
        throw make_error(Errc::unsupported, "etcd at {}: {} ({} for {})", server, text, path, about);
      case Grpc::invalid_argument:
      case Grpc::permission_denied:
      case Grpc::unauthenticated:
        throw make_error(Errc::io, "etcd at {}: {} ({} for {})", server, text, path, about);
    }
    return text;
  }

  Error unreachable(const std::string& path, const std::string& about, Deadline::Clock::time_point began,
                    const std::string& problem) const {
    const auto elapsed = std::chrono::duration_cast<milliseconds>(Deadline::Clock::now() - began);
    return make_error(Errc::unreachable, "no answer from etcd at {} to {} for {} within {} ({})", servers_.text(), path,
                      about, duration_text(elapsed), problem);
  }

  EtcdServers servers_;
  asio::io_context& loop_;
  tcp::socket socket_;
  rendezvous::HostLookup lookup_;
  Timer watchdog_;
  asio::steady_timer pause_;
  boost::beast::flat_buffer buffer_;
  std::minstd_rand random_{random_seed()};
  std::size_t current_ = 0;
  bool connected_ = false;
  bool timed_out_ = false;
  bool unresolved_ = false;  // timed out during the lookup of the server's name
  bool closed_ = false;
};

EtcdClient::EtcdClient(asio::io_context& loop, EtcdServers servers)
    : impl_(std::make_shared<Impl>(loop, std::move(servers))) {}
EtcdClient::~EtcdClient() {
  impl_->close();
}
asio::awaitable<json::value> EtcdClient::call(std::string path, json::object body, std::string about,
                                              Deadline deadline) {
  return impl_->call(std::move(path), std::move(body), std::move(about), deadline);
}
asio::awaitable<std::string> EtcdClient::listen(std::string path, json::object body, Listener listener) {
  return impl_->listen(std::move(path), std::move(body), std::move(listener));
}
void EtcdClient::set_attempt_timeout(milliseconds timeout) {
  impl_->set_attempt_timeout(timeout);
}
void EtcdClient::use_next_server() {
  impl_->use_next_server();
}
void EtcdClient::close() {
  impl_->close();
}
void EtcdClient::disconnect() {
  impl_->disconnect();
}
SessionAddresses EtcdClient::addresses() const {
  return impl_->addresses();
}
const EtcdServers& EtcdClient::servers() const {
  return impl_->servers();
}

}  // namespace ddprun
