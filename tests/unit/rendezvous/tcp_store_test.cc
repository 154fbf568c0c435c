#include "rendezvous/store/tcp_store.h"

#include <arpa/inet.h>
#include <future>
#include <netinet/in.h>
#include <regex>
#include <stop_token>
#include <sys/socket.h>
#include <thread>

#include "common/error.h"
#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_socket.h"
#include "tests/support/accept.h"
#include "tests/support/catch.h"
#include "tests/support/hex.h"
#include "tests/support/raw_socket.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using ddprun::testing::from_hex;
using ddprun::testing::RawSocket;

namespace {

Deadline soon() {
  return Deadline::in(20s);
}
Deadline briefly() {
  return Deadline::in(50ms);
}

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error");
  return Error(Errc::internal, "");
}

// Returns whether the text has a time in seconds after these words.
bool names_time(const Error& error, const std::string& words) {
  const std::string text = error.what();
  const auto at = text.find(words);
  return at != std::string::npos && std::regex_search(text.substr(at + words.size()), std::regex("^[0-9]+\\.[0-9]+ s"));
}

// A server of one connection that follows a script of bytes to receive and to send. It acts as PyTorch's unless stated
// otherwise: it denies the probe.
class ScriptedServer {
 public:
  struct Step {
    std::string expects, sends;
  };
  explicit ScriptedServer(std::vector<Step> steps, char probe_answer = '\1')
      : listener_(listen_on("127.0.0.1", 0)), done_(std::async(std::launch::async, [=, this] {
          auto fd = accept();
          const auto hello = receive(fd, 5 + 5 + 17 + 8);
          if (!hello.starts_with(from_hex("00 CE F7 85 3C 0D"))) return std::string("no VALIDATE and PING");
          send_all(fd.get(), hello.substr(6, 4) + probe_answer, soon());
          for (const auto& step : steps) {
            if (const auto got = receive(fd, step.expects.size()); got != step.expects)
              return "unexpected bytes: " + got;
            send_all(fd.get(), step.sends, soon());
          }
          char byte;
          try {
            receive_some(fd.get(), &byte, 1, soon());
            return std::string("bytes beyond the script");
          } catch (const Error&) {
            return std::string();
          }
        })) {}

  std::uint16_t port() const { return local_address(listener_.get()).port; }
  // Call after the client has closed: returns empty text if it followed the script.
  std::string complaint() { return done_.get(); }

 private:
  UniqueFd accept() {
    for (;;) {
      auto fd = testing::accept_next(listener_.get());
      if (fd) return fd;
      std::this_thread::yield();
    }
  }
  static std::string receive(const UniqueFd& fd, std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t done = 0; done < size;) done += receive_some(fd.get(), bytes.data() + done, size - done, soon());
    return bytes;
  }

  UniqueFd listener_;
  std::future<std::string> done_;
};

std::unique_ptr<TcpStore> client_of(std::uint16_t port, TcpStoreOptions options = {}) {
  options.host = "127.0.0.1";
  options.port = port;
  return std::make_unique<TcpStore>(options, soon());
}

std::string request_for_k(int op) {
  return std::string(1, static_cast<char>(op)) + from_hex("0200000000000000 2F6B");
}
std::string wait_for_k() {
  return from_hex("06 0100000000000000 0200000000000000 2F6B");
}
const std::string zero(1, '\0'), one(1, '\1');

}  // namespace

TEST_CASE("a client may start before its server") {
  std::uint16_t port = 0;
  {
    StoreServerThread placeholder({.host = "127.0.0.1"});
    port = placeholder.port();
  }
  auto client = std::async(std::launch::async, [&] {
    auto store = client_of(port);
    store->set("k", "v", soon());
    return store->get("k", soon());
  });
  CHECK(client.wait_for(100ms) == std::future_status::timeout);
  StoreServerThread server({.host = "127.0.0.1", .port = port});
  CHECK(client.get() == "v");
}

TEST_CASE("a stop request ends dialling") {
  // The backlog has one place, which is taken: the kernel accepts no other connection.
  const UniqueFd full(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(full.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(full.get(), 0) == 0);
  const auto silent = local_address(full.get()).port;
  const RawSocket only(silent);

  std::uint16_t deaf = 0;
  {
    StoreServerThread gone({.host = "127.0.0.1"});
    deaf = gone.port();
  }
  for (const auto port : {silent, deaf}) {
    std::stop_source stop;
    auto client = std::async(std::launch::async, [&] {
      return error_of([&] { TcpStore({.host = "127.0.0.1", .port = port, .stop = stop.get_token()}, soon()); });
    });
    CHECK(client.wait_for(50ms) == std::future_status::timeout);
    stop.request_stop();
    CHECK(client.get().code() == Errc::aborted);
  }
}

TEST_CASE("a stop request ends a call without an answer, and every later one") {
  std::stop_source stop;
  std::promise<void> asked;
  ScriptedServer server({{request_for_k(4) + std::string(8, '\0'), ""}});
  const auto store = client_of(server.port(), {.stop = stop.get_token()});
  auto call = std::async(std::launch::async, [&] {
    asked.set_value();
    return error_of([&] { store->add("k", 0, soon()); });
  });
  asked.get_future().wait();
  stop.request_stop();
  const auto error = call.get();
  CHECK(error.code() == Errc::aborted);
  CHECK_THAT(error.what(), Catch::Contains("it was stopped"));
  CHECK(error_of([&] { store->num_keys(soon()); }).code() == Errc::aborted);
}

TEST_CASE("the error without a listener names address, time and cause") {
  std::uint16_t port = 0;
  {
    StoreServerThread gone({.host = "127.0.0.1"});
    port = gone.port();
  }
  const auto error = error_of([&] { TcpStore({.host = "127.0.0.1", .port = port}, Deadline::in(100ms)); });
  CHECK(error.code() == Errc::timeout);
  CHECK(names_time(error, fmt::format("store 127.0.0.1:{}: no connection after ", port)));
  CHECK_THAT(error.what(), Catch::Contains("Connection refused"));
}

TEST_CASE("dialling a listener that does not answer ends at the deadline") {
  const auto mute = listen_on("127.0.0.1", 0);
  const auto port = local_address(mute.get()).port;
  const auto error = error_of([&] { TcpStore({.host = "127.0.0.1", .port = port}, Deadline::in(100ms)); });
  CHECK(error.code() == Errc::timeout);
  CHECK_THAT(error.what(), Catch::Contains("no reply"));
}

TEST_CASE("a PyTorch server gets only PyTorch's requests") {
  ScriptedServer server({{wait_for_k(), zero},
                         {request_for_k(3), from_hex("0100000000000000 76")},
                         {wait_for_k(), ""},
                         {from_hex("0C"), one},
                         {from_hex("07"), from_hex("0700000000000000")}});
  {
    const auto store = client_of(server.port());
    CHECK_FALSE(store->has_ddprun_extensions());
    CHECK(store->get("k", soon()) == "v");
    CHECK(error_of([&] { store->get("k", briefly()); }).code() == Errc::timeout);
    CHECK(error_of([&] { store->set_will("k", "", soon()); }).code() == Errc::unsupported);
    CHECK(store->num_keys(soon()) == 7);
  }
  CHECK(server.complaint().empty());
}

TEST_CASE("a reply that crosses the cancellation counts, and leaves no bytes unread") {
  ScriptedServer plain({{wait_for_k(), ""},
                        {from_hex("0C"), zero + one},
                        {request_for_k(3), from_hex("0100000000000000 76")},
                        {from_hex("07"), from_hex("0700000000000000")}});
  {
    const auto store = client_of(plain.port());
    CHECK(store->get("k", briefly()) == "v");
    CHECK(store->num_keys(soon()) == 7);
  }
  CHECK(plain.complaint().empty());

  ScriptedServer ours({{request_for_k(0x83), ""},
                       {from_hex("0C"), zero + from_hex("0100000000000000 76") + one},
                       {request_for_k(0x83), ""},
                       {from_hex("0C"), one},
                       {from_hex("07"), from_hex("0700000000000000")}},
                      '\0');
  {
    const auto store = client_of(ours.port());
    CHECK(store->has_ddprun_extensions());
    CHECK(store->get("k", briefly()) == "v");
    CHECK(error_of([&] { store->get("k", briefly()); }).code() == Errc::timeout);
    CHECK(store->num_keys(soon()) == 7);
  }
  CHECK(ours.complaint().empty());
}

TEST_CASE("wake() ends a wait, or the next one if there is none") {
  StoreServerThread server({.host = "127.0.0.1"});
  TcpStore store({.host = "127.0.0.1", .port = server.port()}, soon());
  TcpStore other({.host = "127.0.0.1", .port = server.port()}, soon());
  auto waiting = std::async(std::launch::async,
                            [&] { return error_of([&] { store.wait({"never"}, Deadline::never()); }).code(); });
  store.wake();  // whether or not it is waiting yet
  CHECK(waiting.get() == Errc::timeout);

  store.wake();
  store.wake();
  other.set("there", "value", soon());
  CHECK(store.get("there", soon()) == "value");  // it is no wait(), so it is not affected
  CHECK(error_of([&] { store.wait({"never"}, Deadline::never()); }).code() == Errc::timeout);

  // No bytes are left unread, neither of a cancellation nor of one that crosses the reply.
  for (int i = 0; i < 200; ++i) {
    const auto key = std::to_string(i);
    auto value = std::async(std::launch::async, [&] {
      try {
        store.wait({key}, Deadline::never());
        return std::string("came");
      } catch (const Error& e) {
        return std::string(e.code() == Errc::timeout ? "woken" : e.what());
      }
    });
    other.set(key, "value", soon());
    store.wake();
    const auto got = value.get();
    CHECK((got == "came" || got == "woken"));
  }
  CHECK(store.get("7", soon()) == "value");
}

TEST_CASE("a server that stops answering makes the store unusable, with one error") {
  ScriptedServer server({{wait_for_k(), ""}, {from_hex("0C"), ""}});
  const auto store = client_of(server.port(), {.grace = 100ms});
  const auto first = error_of([&] { store->wait({"k"}, briefly()); });
  CHECK(first.code() == Errc::timeout);
  CHECK(names_time(first, fmt::format("store 127.0.0.1:{}: wait for 'k' failed after ", server.port())));
  CHECK(std::string(error_of([&] { store->num_keys(soon()); }).what()) == first.what());
  CHECK(server.complaint().empty());
}

TEST_CASE("reading a reply has a deadline of its own") {
  ScriptedServer server({{from_hex("07"), ""}});
  const auto store = client_of(server.port());
  const auto error = error_of([&] { store->num_keys(briefly()); });
  CHECK(error.code() == Errc::timeout);
  CHECK_THAT(error.what(), Catch::Contains("no reply"));
  CHECK(error_of([&] { store->num_keys(soon()); }).code() == Errc::connection_lost);
}

TEST_CASE("an invalid reply is a protocol error that names server, key, time and what was expected") {
  ScriptedServer server({{wait_for_k(), from_hex("07")}});
  const auto store = client_of(server.port());
  const auto error = error_of([&] { store->wait({"k"}, soon()); });
  CHECK(error.code() == Errc::protocol);
  CHECK(names_time(error, fmt::format("store 127.0.0.1:{}: wait for 'k' failed after ", server.port())));
  CHECK_THAT(error.what(), Catch::Contains("it replied 7 instead of 0"));
}

TEST_CASE("a call whose deadline has passed is not sent and leaves the store usable") {
  StoreServerThread server({.host = "127.0.0.1"});
  const auto store = client_of(server.port());
  const auto error = error_of([&] { store->add("k", 1, Deadline::in(0ms)); });
  CHECK(error.code() == Errc::timeout);
  CHECK_THAT(error.what(), Catch::Contains("not sent"));
  CHECK(store->add("k", 1, soon()) == 1);
}

TEST_CASE("the error for a lost server names it") {
  auto server = std::make_optional<StoreServerThread>(StoreServerOptions{.host = "127.0.0.1"});
  const auto store = client_of(server->port());
  auto waiting = std::async(std::launch::async, [&] { return error_of([&] { store->get("k", soon()); }); });
  RawSocket::validated(server->port()).settle();
  server.reset();
  const auto error = waiting.get();
  CHECK(error.code() == Errc::connection_lost);
  CHECK_THAT(error.what(),
             Catch::Contains("get 'k' failed after"));  // closed or reset, depending on the bytes in flight
}

TEST_CASE("keys are sent with PyTorch's slash, and list_keys returns those with the client's prefix") {
  StoreServerThread server({.host = "127.0.0.1"});
  const auto store = client_of(server.port());
  store->set("k", "v", soon());
  store->join(soon());
  const auto raw = client_of(server.port(), {.key_prefix = ""});
  CHECK(raw->get("/k", soon()) == "v");
  CHECK(raw->get("init/", soon()) == "1");
  CHECK(store->list_keys(soon()) == std::vector<std::string>{"k"});
  CHECK(raw->list_keys(soon()).size() == 2);
}

TEST_CASE("every client that joins increments one counter, whatever its prefix") {
  StoreServerThread server({.host = "127.0.0.1"});
  CHECK(client_of(server.port())->join(soon()) == 1);
  CHECK(client_of(server.port(), {.key_prefix = "other"})->join(soon()) == 2);
}

TEST_CASE("more keys than fit one request are sent in several") {
  StoreServerThread server({.host = "127.0.0.1"});
  const auto store = client_of(server.port());
  std::vector<Store::KeyValue> pairs;
  std::vector<std::string> keys;
  for (int i = 0; i < 140'000; ++i) {
    keys.push_back(std::to_string(i));
    pairs.emplace_back(keys.back(), keys.back());
  }
  store->multi_set(pairs, soon());
  CHECK(store->num_keys(soon()) == 140'000);
  CHECK(store->check(keys, soon()));
  CHECK(store->multi_get(keys, soon()) == keys);
  keys.push_back("absent");
  CHECK_FALSE(store->check(keys, soon()));
}
