#include "rendezvous/etcd/etcd_client.h"

#include <arpa/inet.h>
#include <atomic>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json/serialize.hpp>

#include "common/error.h"
#include "common/unique_fd.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace json = boost::json;

namespace {

std::string http(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) +
         " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
std::string ok(const std::string& body = R"({"fine":"yes"})") {
  return http(200, body);
}
std::string refusal(int code, const std::string& text) {
  return http(400, R"({"error":")" + text + R"(","code":)" + std::to_string(code) + "}");
}
const std::string hang_up;  // closes without a response
const std::string silence = "silence";
const std::string then_close = "\x01";  // at the end of a response: the server closes after it

// An HTTP server with a list of fixed responses, one per request; the last one is repeated.
class Scripted {
 public:
  explicit Scripted(std::vector<std::string> answers)
      : answers_(std::move(answers)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener_.get(), 8) == 0);
    REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  // REQUIRES: the client has closed its connections, or is about to.
  ~Scripted() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::uint16_t port() const { return port_; }
  EtcdServers::Endpoint endpoint() const { return {"127.0.0.1", port_}; }
  std::string name() const { return "127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }
  int requests() const { return requests_; }

 private:
  void serve() {
    for (;;) {
      const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.get() < 0) return;
      ++connections_;
      while (take_request(connection.get()) && answer(connection.get())) continue;
    }
  }
  static bool take_request(int fd) {
    std::string text;
    char byte = 0;
    while (!text.ends_with("\r\n\r\n")) {
      if (::recv(fd, &byte, 1, 0) != 1) return false;
      text += byte;
    }
    auto left = std::stoul(text.substr(text.find("Content-Length: ") + 16));
    for (; left > 0; --left)
      if (::recv(fd, &byte, 1, 0) != 1) return false;
    return true;
  }
  bool answer(int fd) {
    auto text = answers_[std::min<std::size_t>(static_cast<std::size_t>(requests_++), answers_.size() - 1)];
    if (text == hang_up) return false;
    if (text == silence) return true;
    const bool closes = text.ends_with(then_close);
    if (closes) text.pop_back();
    // The text is sent in two pieces, which the client has to join.
    const auto half = text.size() / 2;
    return ::send(fd, text.data(), half, MSG_NOSIGNAL) > 0 &&
           ::send(fd, text.data() + half, text.size() - half, MSG_NOSIGNAL) > 0 && !closes;
  }

  const std::vector<std::string> answers_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::atomic<int> connections_ = 0, requests_ = 0;
  std::thread thread_;
};

struct Outcome {
  std::string text;
  std::optional<Errc> code;
};

// A client that makes one call at a time, each to its end.
class Caller {
 public:
  explicit Caller(std::vector<EtcdServers::Endpoint> endpoints, std::chrono::milliseconds attempt = 20s)
      : client_(loop_, {.endpoints = std::move(endpoints), .attempt_timeout = attempt}) {}

  Outcome call(std::chrono::milliseconds timeout = 60s) {
    Outcome outcome;
    asio::co_spawn(loop_, client_.call("/v3/kv/range", {{"key", "aw=="}}, "'the key'", Deadline::in(timeout)),
                   [&](const std::exception_ptr& failure, const json::value& answer) {
                     try {
                       if (failure) std::rethrow_exception(failure);
                       outcome.text = json::serialize(answer);
                     } catch (const Error& error) {
                       outcome = {error.what(), error.code()};
                     }
                   });
    loop_.restart();
    loop_.run();
    return outcome;
  }
  std::string listen(std::vector<std::string>& lines) {
    std::string end;
    asio::co_spawn(loop_,
                   client_.listen("/v3/watch", {}, [&](const json::value& v) { lines.push_back(json::serialize(v)); }),
                   [&](const std::exception_ptr&, const std::string& why) { end = why; });
    loop_.restart();
    loop_.run();
    return end;
  }

 private:
  asio::io_context loop_{1};
  EtcdClient client_;
};

}  // namespace

TEST_CASE("calls to etcd share one connection") {
  Scripted server({ok()});
  Caller caller({server.endpoint()});
  CHECK(caller.call().text == R"({"fine":"yes"})");
  CHECK(caller.call().text == R"({"fine":"yes"})");
  CHECK(server.connections() == 1);
}

TEST_CASE("a connection that etcd has closed is redialled") {
  Scripted server({ok() + then_close, ok("[1]")});
  Caller caller({server.endpoint()});
  CHECK(!caller.call().code);
  CHECK(caller.call().text == "[1]");
  CHECK(server.connections() == 2);
}

TEST_CASE("if an etcd server fails the next one is used, and stays in use") {
  Scripted bad({hang_up});
  Scripted good({ok()});
  Caller caller({bad.endpoint(), good.endpoint()});
  CHECK(!caller.call().code);
  CHECK(!caller.call().code);
  CHECK(bad.requests() == 1);
  CHECK(good.connections() == 1);
}

TEST_CASE("the error for an etcd without an answer names server, path, key, elapsed time and cause") {
  Scripted server({silence});
  Caller caller({server.endpoint()}, 50ms);
  const auto outcome = caller.call(300ms);
  CHECK(outcome.code == Errc::unreachable);
  CHECK_THAT(outcome.text,
             Catch::StartsWith("no answer from etcd at " + server.name() + " to /v3/kv/range for 'the key' within "));
  CHECK_THAT(outcome.text, Catch::Contains("no answer within 0.05 s"));
}

TEST_CASE("a request that etcd refuses is not retried, a temporary error is") {
  SECTION("permission") {
    Scripted server({refusal(7, "etcdserver: permission denied")});
    const auto outcome = Caller({server.endpoint()}).call();
    CHECK(outcome.code == Errc::io);
    CHECK(outcome.text == "etcd at " + server.name() + ": etcdserver: permission denied (/v3/kv/range for 'the key')");
  }
  SECTION("a lease that has expired") {
    Scripted server({refusal(5, "etcdserver: requested lease not found")});
    CHECK(Caller({server.endpoint()}).call().code == Errc::peer_lost);
  }
  SECTION("an election") {
    Scripted server({refusal(14, "etcdserver: no leader"), ok()});
    CHECK(!Caller({server.endpoint()}).call().code);
    CHECK(server.requests() == 2);
  }
  SECTION("an incomplete response") {
    Scripted server({"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n{" + then_close, ok()});
    CHECK(!Caller({server.endpoint()}).call().code);
  }
}

TEST_CASE("a server that is not etcd v3 is named as such") {
  Scripted old({http(404, "404 page not found\n")});
  const auto outcome = Caller({old.endpoint()}).call();
  CHECK(outcome.code == Errc::unsupported);
  CHECK_THAT(outcome.text, Catch::Contains(old.name() + " is not etcd v3"));
  Scripted other({ok("<html>")});
  CHECK(Caller({other.endpoint()}).call().code == Errc::unsupported);
}

TEST_CASE("a streaming response is passed on value by value") {
  const std::string head = "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n";
  Scripted server({head + "5\r\n[1]\n[\r\n" + "6\r\n2]\n[3]\r\n" + "1\r\n\n\r\n" + "0\r\n\r\n" + then_close});
  Caller caller({server.endpoint()});
  std::vector<std::string> lines;
  CHECK(caller.listen(lines) == "the server ended the stream");
  CHECK(lines == std::vector<std::string>{"[1]", "[2]", "[3]"});
}
