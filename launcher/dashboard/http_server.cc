#include "launcher/dashboard/http_server.h"

#include <algorithm>
#include <set>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "launcher/dashboard/http_rules.h"
#include "rendezvous/trust/secret.h"

namespace ddprun::dashboard {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

constexpr std::chrono::milliseconds accept_pause{200};

constexpr const char* stream_head =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n";

std::string view_of(const Request& request, http::field name) {
  const auto value = request[name];
  return {value.data(), value.size()};
}

HttpAnswer refusal(unsigned status, std::string text) {
  return {.status = status, .body = std::move(text) + "\n"};
}

std::string text_of(const StreamEvent& event) {
  return fmt::format("id: {}\ndata: {}\n\n", event.id, event.data);
}

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& loop, HttpSpec spec, Handlers handlers)
      : spec_(std::move(spec)), handlers_(std::move(handlers)), acceptor_(loop), accept_timer_(loop), timer_(loop) {}

  void open() {
    error_code failure;
    const auto address = asio::ip::make_address(spec_.address, failure);
    if (failure) throw make_error(Errc::usage, "--dashboard: '{}' is not an address", spec_.address);
    const tcp::endpoint endpoint(address, spec_.port);
    try {
      acceptor_.open(endpoint.protocol());
      acceptor_.set_option(asio::socket_base::reuse_address(true));
      acceptor_.bind(endpoint);
      acceptor_.listen();
    } catch (const boost::system::system_error& e) {
      throw make_error(Errc::io, "--dashboard: cannot listen at {}: {}", format_host_port(spec_.address, spec_.port),
                       e.code().message());
    }
    hosts_.emplace(spec_.address, port(), spec_.host);
    cookie_ = fmt::format("ddprun_{}", port());  // a browser sends a cookie to all ports of a host
    accept();
    wait();
  }

  void close() {
    error_code ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel();
    timer_.cancel();
    for (const auto& client : std::set(clients_)) drop(client);
    handlers_ = {};
  }

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  std::size_t streams() const {
    return static_cast<std::size_t>(
        std::count_if(clients_.begin(), clients_.end(), [](const auto& client) { return client->streams; }));
  }

  void notify() {
    for (const auto& client : std::set(clients_)) {
      if (!client->streams) continue;
      client->behind = !client->outgoing.empty();
      if (!client->behind) send_next(client);
    }
  }

  void notify_last() {
    for (const auto& client : clients_) {
      if (!client->streams || !client->outgoing.empty()) continue;
      const auto event = handlers_.next(client->last_id);
      error_code ignored;
      client->stream.socket().non_blocking(true, ignored);
      if (event) client->stream.socket().send(asio::buffer(text_of(*event)), 0, ignored);
    }
  }

 private:
  struct Client {
    explicit Client(tcp::socket socket) : stream(std::move(socket)) {}
    beast::tcp_stream stream;
    beast::flat_buffer input;
    std::optional<http::request_parser<http::empty_body>> parser;
    std::optional<Response> response;
    // The event stream owns the connection from here on.
    bool streams = false;
    std::string last_id;
    std::string outgoing;         // being written; empty if nothing is
    bool behind = false;          // there may be news that the client has not been sent
    Clock::time_point written{};  // when the last write began
    char ignored = 0;
  };
  using ClientPtr = std::shared_ptr<Client>;

  void accept() {
    acceptor_.async_accept([self = shared_from_this()](error_code failure, tcp::socket socket) {
      if (!self->acceptor_.is_open()) return;
      if (failure) return self->accept_later(failure);
      self->accept_failed_ = false;
      const auto client = std::make_shared<Client>(std::move(socket));
      self->clients_.insert(client);
      self->read(client);
      if (self->clients_.size() < self->spec_.limits.clients) self->accept();
    });
  }

  // Without descriptors or memory the client stays in the backlog, so that another try at once would fail again.
  void accept_later(error_code failure) {
    if (!std::exchange(accept_failed_, true))
      log::warn("dashboard: cannot accept a connection: {}; it is tried again", failure.message());
    accept_timer_.expires_after(accept_pause);
    accept_timer_.async_wait([self = shared_from_this()](error_code cancelled) {
      if (!cancelled && self->acceptor_.is_open()) self->accept();
    });
  }

  void drop(const ClientPtr& client) {
    const bool was_full = clients_.size() >= spec_.limits.clients;
    if (clients_.erase(client) == 0) return;
    error_code ignored;
    client->stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
    client->stream.close();
    if (was_full && acceptor_.is_open()) accept();
  }

  void read(const ClientPtr& client) {
    client->parser.emplace();
    client->parser->header_limit(static_cast<std::uint32_t>(spec_.limits.header_bytes));
    client->parser->body_limit(0);
    client->stream.expires_after(spec_.limits.request_time);
    http::async_read(client->stream, client->input, *client->parser,
                     [self = shared_from_this(), client](error_code failure, std::size_t) {
                       if (!self->handlers_.page) return;
                       if (failure == http::error::header_limit)
                         return self->answer(client, refusal(431, "the request is too large"), false);
                       if (failure == http::error::body_limit || failure == http::error::unexpected_body)
                         return self->answer(client, refusal(413, "a request has no body here"), false);
                       if (failure) return self->drop(client);
                       self->handle(client);
                     });
  }

  void handle(const ClientPtr& client) {
    const auto& request = client->parser->get();
    auto path = std::string(request.target().data(), request.target().size());
    const auto mark = std::min(path.find('?'), path.size());
    const auto query = path.substr(std::min(mark + 1, path.size()));
    path.resize(mark);
    if (const auto refused = refuse(request, path)) return answer(client, *refused, request.keep_alive());
    if (path == "/") return answer(client, handlers_.page(), request.keep_alive());
    if (path == "/login") return answer(client, login(), request.keep_alive());
    if (path == "/events") return start_stream(client);
    answer(client, handlers_.get({.path = path, .query = query, .accept = view_of(request, http::field::accept)}),
           request.keep_alive());
  }

  std::optional<HttpAnswer> refuse(const Request& request, const std::string& path) const {
    if (request.method() != http::verb::get) {
      auto answer = refusal(405, "this server answers only GET");
      answer.headers.emplace_back("Allow", "GET");
      return answer;
    }
    if (!hosts_->allows(view_of(request, http::field::host)))
      return refusal(421, "this server has another name than the Host header says");
    if (path == "/" || spec_.token.empty()) return std::nullopt;
    const auto header = view_of(request, http::field::authorization);
    const auto bearer = bearer_token(header);
    if (bearer && equal_in_constant_time(*bearer, spec_.token)) return std::nullopt;
    const auto cookies = view_of(request, http::field::cookie);
    const auto cookie = cookie_value(cookies, cookie_);
    if (path != "/login" && cookie && equal_in_constant_time(*cookie, spec_.token)) return std::nullopt;
    auto answer = refusal(401, "the token is missing or wrong");
    answer.headers.emplace_back("WWW-Authenticate", "Bearer");
    return answer;
  }

  HttpAnswer login() const {
    return {.status = 204,
            .headers = {{"Set-Cookie", fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/", cookie_, spec_.token)}}};
  }

  void answer(const ClientPtr& client, const HttpAnswer& answer, bool keep_alive) {
    auto& response = client->response.emplace(static_cast<http::status>(answer.status), 11);
    response.set(http::field::content_type, answer.type);
    response.set(http::field::cache_control, "no-store");
    response.set("X-Content-Type-Options", "nosniff");
    response.set("Referrer-Policy", "no-referrer");
    response.set("Cross-Origin-Resource-Policy", "same-origin");
    for (const auto& [name, value] : answer.headers) response.set(name, value);
    response.keep_alive(keep_alive);
    response.body() = answer.body;
    response.prepare_payload();
    client->stream.expires_after(spec_.limits.write_time);
    http::async_write(client->stream, response,
                      [self = shared_from_this(), client, keep_alive](error_code failure, std::size_t) {
                        if (failure || !keep_alive || !self->handlers_.page) return self->drop(client);
                        self->read(client);
                      });
  }

  void start_stream(const ClientPtr& client) {
    const auto& request = client->parser->get();
    const auto last = request["Last-Event-ID"];
    client->streams = true;
    client->last_id.assign(last.data(), std::min<std::size_t>(last.size(), spec_.limits.largest_token));
    client->stream.expires_never();
    watch_end(client);
    write(client, stream_head);
  }

  // The end of its stream shows that a client has closed.
  void watch_end(const ClientPtr& client) {
    client->stream.socket().async_read_some(asio::buffer(&client->ignored, 1),
                                            [self = shared_from_this(), client](error_code failure, std::size_t) {
                                              if (failure) return self->drop(client);
                                              self->watch_end(client);
                                            });
  }

  void send_next(const ClientPtr& client) {
    const auto event = handlers_.next(client->last_id);
    if (!event) return;
    client->last_id = event->id;
    write(client, text_of(*event));
  }

  void write(const ClientPtr& client, std::string text) {
    client->outgoing = std::move(text);
    client->written = Clock::now();
    asio::async_write(client->stream.socket(), asio::buffer(client->outgoing),
                      [self = shared_from_this(), client](error_code failure, std::size_t) {
                        if (failure || !self->handlers_.next) return self->drop(client);
                        const bool was_head = std::exchange(client->outgoing, "") == stream_head;
                        if (std::exchange(client->behind, false) || was_head) self->send_next(client);
                      });
  }

  void wait() {
    timer_.expires_after(std::chrono::seconds(1));
    timer_.async_wait([self = shared_from_this()](error_code failure) {
      if (failure || !self->acceptor_.is_open()) return;
      self->check_streams();
      self->wait();
    });
  }

  void check_streams() {
    const auto now = Clock::now();
    for (const auto& client : std::set(clients_)) {
      if (!client->streams) continue;
      const auto passed = now - client->written;
      if (!client->outgoing.empty() && passed > spec_.limits.write_time) drop(client);
      if (client->outgoing.empty() && passed >= spec_.limits.comment_interval) write(client, ":\n\n");
    }
  }

  const HttpSpec spec_;
  Handlers handlers_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_timer_;
  bool accept_failed_ = false;  // since a connection was accepted last
  asio::steady_timer timer_;
  std::optional<HostRule> hosts_;
  std::string cookie_;
  std::set<ClientPtr> clients_;
};

HttpServer::HttpServer(asio::io_context& loop, HttpSpec spec, Handlers handlers)
    : impl_(std::make_shared<Impl>(loop, std::move(spec), std::move(handlers))) {
  impl_->open();
}
HttpServer::~HttpServer() {
  impl_->close();
}
std::uint16_t HttpServer::port() const {
  return impl_->port();
}
void HttpServer::notify() {
  impl_->notify();
}
void HttpServer::notify_last() {
  impl_->notify_last();
}
std::size_t HttpServer::streams() const {
  return impl_->streams();
}

}  // namespace ddprun::dashboard
