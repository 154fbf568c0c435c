// Every byte that reaches the server of a job's page before the token: one connection with arbitrary requests, whole or
// cut off. Without the token the page alone is given out, and every answer has the form of HTTP.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "launcher/dashboard/http_server.h"

using namespace ddprun::dashboard;
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr std::string_view token = "5f0e1d2c3b4a59687786958493a2b1c0";
constexpr std::string_view page = "the page";
constexpr std::size_t most_bytes = 16 * 1024;  // above the server's limit of a request

void require(bool condition) {
  if (!condition) std::abort();
}

// A server whose handlers, those of the page aside, may not be called.
class Server {
 public:
  std::string port() const { return std::to_string(server_.port()); }
  // Returns what the server answers until it closes the connection.
  std::string answer(std::string_view request) {
    tcp::socket client(loop_, tcp::v4());
    // A port of one address is free again a minute after a connection, which is too late for thousands a second.
    client.bind({asio::ip::address_v4(first_client + clients_++ % 0xffff), 0});
    connect(client);
    boost::system::error_code ignored;
    std::string answers;
    bool closed = false;
    asio::async_write(client, asio::buffer(request), [&](boost::system::error_code, std::size_t) {
      client.shutdown(tcp::socket::shutdown_send, ignored);
    });
    asio::async_read(client, asio::dynamic_buffer(answers),
                     [&](boost::system::error_code, std::size_t) { closed = true; });
    while (!closed) loop_.run_one();
    client.close(ignored);
    loop_.poll();
    return answers;
  }

 private:
  // A connect() that waits would be interrupted by libFuzzer's alarm.
  void connect(tcp::socket& client) {
    bool connected = false;
    client.async_connect({asio::ip::address_v4::loopback(), server_.port()}, [&](boost::system::error_code failure) {
      require(!failure);
      connected = true;
    });
    while (!connected) loop_.run_one();
  }

  static constexpr std::uint32_t first_client = 0x7f010000;  // 127.1.0.0

  asio::io_context loop_;
  std::uint32_t clients_ = 0;
  HttpServer server_{loop_,
                     {.host = "host", .token = std::string(token)},
                     {.page = [] { return HttpAnswer{.body = std::string(page)}; },
                      .get = [](const HttpRequest&) -> HttpAnswer { std::abort(); },
                      .next = [](const std::string&) -> std::optional<StreamEvent> { std::abort(); }}};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), std::min(size, most_bytes));
  if (bytes.find(token) != std::string_view::npos) return 0;
  static Server server;
  // "@" stands for the server's port, which the Host header has to name.
  std::string request(bytes);
  if (const auto mark = request.find('@'); mark != std::string::npos) request.replace(mark, 1, server.port());
  const auto answers = server.answer(request);
  require(answers.empty() || answers.starts_with("HTTP/1.1 "));
  require(answers.find(token) == std::string::npos);
  return 0;
}
