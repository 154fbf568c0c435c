#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace boost::asio {
class io_context;
}

namespace ddprun::dashboard {

struct HttpRequest {
  std::string path;    // without the query
  std::string query;   // the text after the question mark
  std::string accept;  // the Accept header
};

struct HttpAnswer {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // further headers
};

// An event of a stream of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
struct StreamEvent {
  std::string id;    // the last one that a client has received is in its next request
  std::string data;  // one line
};

struct HttpLimits {
  std::size_t header_bytes = 8 * 1024;
  std::size_t clients = 128;                  // further ones wait in the backlog
  std::chrono::seconds request_time{10};      // for a request to arrive, or an idle connection to be used
  std::chrono::seconds write_time{30};        // for a client to take what was sent
  std::chrono::seconds comment_interval{15};  // a stream without events gets a comment
  std::size_t largest_token = 256;
};

struct HttpSpec {
  std::string address = "127.0.0.1";  // a literal
  std::uint16_t port = 0;             // 0: any free one
  std::string host;                   // this machine's name, for the Host header
  std::string token;                  // a client has to send it for all but the page; empty: nothing is required
  HttpLimits limits = {};
};

// A read-only HTTP server: the page at "/", a stream of events at "/events", and the answers of a handler at other
// paths. Everything except the page requires the token: as "Authorization: Bearer TOKEN", or as a cookie, which a
// request of "/login" with that header sets. Any other method than GET, a body, another Host than its own, and requests
// beyond the limits are refused.
//
// Ownership: the loop outlives it; the destructor closes all connections. Threads: single-threaded on the loop, which
// calls the handlers. Errors: the constructor throws Errc::io, naming the address; others end a connection.
class HttpServer {
 public:
  struct Handlers {
    std::function<HttpAnswer()> page;
    std::function<HttpAnswer(const HttpRequest&)> get;  // answers for any other path
    // Returns the event that follows the one of this id, the first one if the id is empty or not this server's; nullopt
    // if nothing is new. It is asked for one event at a time, so a slow client gets fewer, and none waits.
    std::function<std::optional<StreamEvent>(const std::string& last_id)> next;
  };

  HttpServer(boost::asio::io_context& loop, HttpSpec spec, Handlers handlers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  // Sends what is new to the clients that have taken what they were sent.
  void notify();
  // Does what notify() does at once, as far as the connections accept it, before this process ends.
  void notify_last();
  // Returns how many clients receive events.
  std::size_t streams() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun::dashboard
