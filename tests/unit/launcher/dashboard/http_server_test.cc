#include "launcher/dashboard/http_server.h"

#include <atomic>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::dashboard;
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// A server with a loop in a thread. Its events are numbers that the test sets, each with a body of some size.
class Served {
 public:
  explicit Served(HttpLimits limits = {}, std::size_t event_size = 1) : event_size_(event_size) {
    server_ = std::make_unique<HttpServer>(
        loop_, HttpSpec{.host = "node1", .token = "secret", .limits = limits},
        HttpServer::Handlers{
            .page = [] { return HttpAnswer{.type = "text/html", .body = "the page"}; },
            .get = [](const HttpRequest& request) { return HttpAnswer{.body = request.path + " " + request.accept}; },
            .next = [this](const std::string& last) { return next(last); }});
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Served() {
    asio::post(loop_, [this] { server_.reset(); });
    work_.reset();
    thread_.join();
  }

  void set_event(int number) {
    event_ = number;
    asio::post(loop_, [this] { server_->notify(); });
  }
  int asked() const { return asked_; }
  std::uint16_t port() const { return server_->port(); }
  std::string host() const { return "127.0.0.1:" + std::to_string(port()); }

 private:
  std::optional<StreamEvent> next(const std::string& last) {
    const auto id = std::to_string(event_);
    if (last == id) return std::nullopt;
    ++asked_;
    return StreamEvent{.id = id, .data = std::string(event_size_, 'x')};
  }

  const std::size_t event_size_;
  std::atomic<int> event_{0};
  std::atomic<int> asked_{0};
  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{loop_.get_executor()};
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

class Connection {
 public:
  explicit Connection(const Served& served) : served_(served) {
    socket_.connect(tcp::endpoint(asio::ip::make_address("127.0.0.1"), served.port()));
  }
  // Returns the first line of the answer and its headers.
  std::string ask(const std::string& method, const std::string& path, const std::string& more = "",
                  const std::string& host = "") {
    send(fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n{}\r\n", method, path, host.empty() ? served_.host() : host, more));
    return head();
  }
  std::string get(const std::string& path) { return ask("GET", path, "Authorization: Bearer secret\r\n"); }
  void send(const std::string& text) { asio::write(socket_, asio::buffer(text)); }
  std::string head() { return until("\r\n\r\n"); }
  // Returns the text received up to `end`; all text before the end of the connection if `end` is missing.
  std::string until(const std::string& end) {
    boost::system::error_code failure;
    auto size = asio::read_until(socket_, asio::dynamic_buffer(input_), end, failure);
    if (failure) size = input_.size();
    auto text = input_.substr(0, size);
    input_.erase(0, size);
    return text;
  }
  bool ends() {
    char byte = 0;
    boost::system::error_code failure;
    while (!failure) asio::read(socket_, asio::buffer(&byte, 1), failure);
    return failure == asio::error::eof || failure == asio::error::connection_reset;
  }

 private:
  const Served& served_;
  asio::io_context loop_;
  tcp::socket socket_{loop_};
  std::string input_;
};

std::string status_of(const std::string& head) {
  return head.substr(0, head.find("\r\n"));
}

}  // namespace

TEST_CASE("the page takes no token, everything else does") {
  const Served served;
  CHECK(status_of(Connection(served).ask("GET", "/")) == "HTTP/1.1 200 OK");
  for (const auto* path : {"/metrics", "/events", "/state", "/login"}) {
    CAPTURE(path);
    CHECK(status_of(Connection(served).ask("GET", path)) == "HTTP/1.1 401 Unauthorized");
    CHECK(status_of(Connection(served).ask("GET", path, "Authorization: Bearer wrong\r\n")) ==
          "HTTP/1.1 401 Unauthorized");
  }
  CHECK(status_of(Connection(served).get("/metrics")) == "HTTP/1.1 200 OK");
}

TEST_CASE("a login sets a cookie that scripts cannot read and other sites cannot send") {
  const Served served;
  const auto head = Connection(served).get("/login");
  const auto cookie = fmt::format("ddprun_{}=secret", served.port());
  CHECK_THAT(head, Catch::Contains("Set-Cookie: " + cookie + "; HttpOnly; SameSite=Strict; Path=/\r\n"));
  CHECK(status_of(Connection(served).ask("GET", "/state", "Cookie: a=b; " + cookie + "\r\n")) == "HTTP/1.1 200 OK");
  CHECK(status_of(Connection(served).ask("GET", "/state", "Cookie: " + cookie + "x\r\n")) ==
        "HTTP/1.1 401 Unauthorized");
  // The cookie is no substitute for the token that makes one.
  CHECK(status_of(Connection(served).ask("GET", "/login", "Cookie: " + cookie + "\r\n")) ==
        "HTTP/1.1 401 Unauthorized");
}

TEST_CASE("a request by another name, by another method, with a body or too large is refused") {
  const Served served;
  CHECK(status_of(Connection(served).ask("GET", "/", "", "evil.example:80")) == "HTTP/1.1 421 Misdirected Request");
  for (const auto* method : {"POST", "PUT", "DELETE", "OPTIONS", "HEAD"}) {
    CAPTURE(method);
    CHECK(status_of(Connection(served).ask(method, "/state", "Authorization: Bearer secret\r\n")) ==
          "HTTP/1.1 405 Method Not Allowed");
  }
  CHECK(status_of(Connection(served).ask("GET", "/", "Content-Length: 3\r\n")) == "HTTP/1.1 413 Payload Too Large");
  CHECK(status_of(Connection(served).ask("GET", "/", "X: " + std::string(9'000, 'x') + "\r\n")) ==
        "HTTP/1.1 431 Request Header Fields Too Large");
  Connection junk(served);
  junk.send("\x16\x03\x01 no HTTP at all\r\n\r\n");
  CHECK(junk.ends());
  CHECK(status_of(Connection(served).ask("GET", "/")) == "HTTP/1.1 200 OK");
}

TEST_CASE("a connection that sends no request in time is closed") {
  const Served served({.request_time = std::chrono::seconds(1)});
  Connection silent(served);
  Connection slow(served);
  slow.send("GET / HTTP/1.1\r\nHost:");
  CHECK(silent.ends());
  CHECK(slow.ends());
}

TEST_CASE("a connection serves several requests") {
  const Served served;
  Connection connection(served);
  CHECK_THAT(connection.get("/a?b=c"), Catch::Contains("Content-Length: 3\r\n"));
  CHECK(connection.until("/a ") == "/a ");
  CHECK(status_of(connection.get("/b")) == "HTTP/1.1 200 OK");
}

TEST_CASE("a stream gets each event once, and continues after the one that its client has seen") {
  Served served;
  Connection connection(served);
  CHECK_THAT(connection.get("/events"), Catch::Contains("Content-Type: text/event-stream\r\n"));
  CHECK(connection.until("\n\n") == "id: 0\ndata: x\n\n");
  served.set_event(1);
  CHECK(connection.until("\n\n") == "id: 1\ndata: x\n\n");
  served.set_event(1);  // nothing is new
  served.set_event(2);
  CHECK(connection.until("\n\n") == "id: 2\ndata: x\n\n");
  Connection again(served);
  again.ask("GET", "/events", "Authorization: Bearer secret\r\nLast-Event-ID: 2\r\n");
  served.set_event(3);
  CHECK(again.until("\n\n") == "id: 3\ndata: x\n\n");
}

TEST_CASE("nothing waits for a client that does not read") {
  constexpr std::size_t large = 16 << 20;  // more than the sockets hold
  Served served({}, large);
  Connection slow(served);
  slow.get("/events");
  CHECK(slow.until("\n") == "id: 0\n");  // it is being written from now on
  for (int number = 1; number <= 50; ++number) served.set_event(number);
  CHECK(status_of(Connection(served).get("/state")) == "HTTP/1.1 200 OK");  // the loop has handled them by now
  CHECK(served.asked() == 1);
  CHECK(slow.until("\n\n").size() > large);
  served.set_event(50);
  CHECK(slow.until("\n").starts_with("id: 50"));  // the newest, and none between
}

TEST_CASE("a stream without events gets a comment now and then") {
  const Served served({.comment_interval = std::chrono::seconds(1)});
  Connection connection(served);
  connection.get("/events");
  connection.until("\n\n");
  CHECK(connection.until("\n\n") == ":\n\n");
}

TEST_CASE("more clients than the limit wait until one has gone") {
  const Served served({.clients = 2});
  auto first = std::make_unique<Connection>(served);
  Connection second(served);
  first->get("/events");
  second.get("/events");
  Connection third(served);
  third.send("GET / HTTP/1.1\r\nHost: " + served.host() + "\r\n\r\n");
  first.reset();
  CHECK(status_of(third.head()) == "HTTP/1.1 200 OK");
}

namespace {

// No descriptor can be opened while it exists.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int lowest_free = ::dup(STDIN_FILENO);
    ::close(lowest_free);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a server without descriptors says so once, serves its clients, and accepts more when it can") {
  std::atomic<int> warnings{0};
  log::set_writer([&](std::string_view line) {
    if (line.find("dashboard: cannot accept a connection") != std::string_view::npos) ++warnings;
  });
  {
    const Served served;
    Connection first(served);
    first.get("/a");
    CHECK(first.until("/a ") == "/a ");
    asio::io_context loop;
    tcp::socket second(loop, tcp::v4());
    {
      const NoDescriptors none;
      second.connect(tcp::endpoint(asio::ip::make_address("127.0.0.1"), served.port()));
      while (warnings == 0) std::this_thread::yield();
      CHECK(status_of(first.get("/b")) == "HTTP/1.1 200 OK");
      CHECK(first.until("/b ") == "/b ");
    }
    asio::write(second, asio::buffer("GET / HTTP/1.1\r\nHost: " + served.host() + "\r\n\r\n"));
    std::string answer;
    asio::read_until(second, asio::dynamic_buffer(answer), "\r\n\r\n");
    CHECK(status_of(answer) == "HTTP/1.1 200 OK");
    CHECK(warnings == 1);
  }
  log::set_writer(nullptr);
}

TEST_CASE("an address that is in use is named") {
  asio::io_context loop;
  tcp::acceptor taken(loop, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
  const auto port = taken.local_endpoint().port();
  CHECK_THROWS_WITH(HttpServer(loop, {.port = port}, {}),
                    Catch::Contains(fmt::format("--dashboard: cannot listen at 127.0.0.1:{}", port)));
}
