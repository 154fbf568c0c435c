#include "rendezvous/store/store_server.h"

#include <fcntl.h>
#include <future>
#include <map>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <sys/resource.h>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "common/log.h"
#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/support/catch.h"
#include "tests/support/hex.h"
#include "tests/support/raw_socket.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using ddprun::testing::from_hex;
using ddprun::testing::RawSocket;
using Views = std::vector<std::string_view>;

namespace asio = boost::asio;

namespace {

std::string vec(std::string_view bytes) {
  std::string out;
  put_vec(out, bytes);
  return out;
}
const std::string zero(1, '\0'), one(1, '\1');
constexpr std::size_t large = 4 << 20;

// A server, and a client that checks at the end that it is still served.
struct Served {
  explicit Served(StoreServerOptions options = {}) : server(options), witness(RawSocket::validated(server.port())) {
    witness.settle();
  }
  ~Served() { CHECK_NOTHROW(witness.settle()); }

  RawSocket connect() { return RawSocket::validated(server.port()); }
  // Waits until the witness reads a value of key.
  std::string await(std::string_view key) {
    witness.send(WaitGetRequest{key});
    REQUIRE(witness.receive(1) == zero);
    const auto size = witness.receive(8);
    return witness.receive(static_cast<unsigned char>(size[0]));
  }

  StoreServerThread server;
  RawSocket witness;
};

}  // namespace

TEST_CASE("a connection that does not begin with VALIDATE is closed, and no other") {
  Served served;
  for (const auto& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), encode(NumKeysRequest{}), from_hex("00 CE F7 85 3D"),
                            from_hex("00 CE F7 85 3C 00 CE F7 85 3C")}) {
    RawSocket socket(served.server.port());
    socket.send(bytes);
    CHECK(socket.closed_by_server());
  }
}

TEST_CASE("VALIDATE may arrive in pieces") {
  Served served;
  RawSocket slow(served.server.port());
  for (const auto* piece : {"00", "CE F7", "85 3C"}) {
    slow.send(from_hex(piece));
    served.witness.settle();  // the server has run its loop
  }
  slow.settle();
}

TEST_CASE("VALIDATE has to arrive in time") {
  Served served({.start_timeout = 2s});
  auto complete = served.connect();
  RawSocket silent(served.server.port()), half(served.server.port());
  half.send(from_hex("00 CE"));
  CHECK(silent.closed_by_server());
  CHECK(half.closed_by_server());
  complete.settle();
}

TEST_CASE("requests that violate the protocol close their connection and change nothing") {
  Served served;
  const std::vector<std::string> bad = {
      from_hex("13"),  // unknown opcodes
      from_hex("FF"),
      from_hex("80 01 00 00 00 00 00 00 00 41"),  // a session, although there is no hub
      from_hex("03 01 20 00 00 00 00 00 00"),     // a key of 8193 bytes
      from_hex("03 FF FF FF FF FF FF FF FF"),
      from_hex("01 01 00 00 00 00 00 00 00 6B 01 00 80 00 00 00 00 00"),  // a value of 8 MiB + 1
      from_hex("06 01 00 02 00 00 00 00 00"),                             // 131073 keys
      encode(AddRequest{"text", 1}),
  };
  served.witness.send(SetRequest{"text", "x"});
  served.witness.settle();
  for (const auto& bytes : bad) {
    auto socket = served.connect();
    socket.send(bytes);
    CHECK(socket.closed_by_server());
  }
  served.witness.send(NumKeysRequest{});
  CHECK(served.witness.receive(8)[0] == 1);
  CHECK(served.await("text") == "x");
}

TEST_CASE("an incomplete request times out and does not block other clients") {
  Served served({.request_timeout = 2s});
  auto slow = served.connect(), stuck = served.connect();
  const auto request = encode(SetRequest{"k", "value"});
  slow.send(request.substr(0, 12));
  stuck.send(request.substr(0, 12));
  served.witness.settle();
  slow.send(request.substr(12));
  CHECK(served.await("k") == "value");
  CHECK(stuck.closed_by_server());
  slow.settle();
}

TEST_CASE("many requests in one packet are answered in order") {
  Served served;
  auto socket = served.connect();
  std::string requests, answers;
  for (int i = 1; i <= 5000; ++i) {
    encode(AddRequest{"n", 1}, requests);
    put_i64(answers, i);
  }
  socket.send(requests);
  CHECK(socket.receive(answers.size()) == answers);
}

TEST_CASE("the operations of clients are counted by their names") {
  asio::io_context loop;
  StoreServer server(loop, {.host = "127.0.0.1"});
  CHECK(server.operations().empty());
  std::jthread client([&] {
    TcpStore store({.host = "127.0.0.1", .port = server.port()}, Deadline::in(10s));
    for (int i = 0; i < 3; ++i) store.add("n", 1, Deadline::in(10s));
    store.set("k", "v", Deadline::in(10s));
    CHECK(store.get("k", Deadline::in(10s)) == "v");
    asio::post(loop, [&] { loop.stop(); });
  });
  loop.run();
  const auto counted = server.operations();
  CHECK(counted.at("add") == 3);
  CHECK(counted.at("set") == 1);
  CHECK_FALSE(counted.contains("append"));
}

TEST_CASE("a client that reads late gets all replies in order") {
  Served served;
  auto socket = served.connect();
  const std::string value(large, 'v');
  socket.send(SetRequest{"k", value});
  constexpr int times = 6;  // far more than the socket buffers and the server's pause hold
  for (int i = 0; i < times; ++i) socket.send(GetRequest{"k"});
  socket.send(PingRequest{5});
  served.witness.settle();
  for (int i = 0; i < times; ++i) CHECK(socket.receive(8 + large) == vec(value));
  CHECK(socket.receive(4) == from_hex("05 00 00 00"));
}

// The client's last will shows that it was closed: a read from its socket would change the test.
TEST_CASE("a client that never reads is closed") {
  Served served({.write_timeout = 300ms});
  auto socket = served.connect();
  socket.send(LastWillRequest{"gone", "yes"});
  socket.send(SetRequest{"k", std::string(large, 'v')});
  for (int i = 0; i < 6; ++i) socket.send(GetRequest{"k"});
  CHECK(served.await("gone") == "yes");
}

TEST_CASE("a client that queues more than the limit is closed") {
  Served served({.max_queued_bytes = 1 << 20});
  auto socket = served.connect();
  socket.send(LastWillRequest{"gone", "yes"});
  socket.send(SetRequest{"k", std::string(large, 'v')});
  socket.send(MultiGetRequest{Views(10, "k")});
  CHECK(served.await("gone") == "yes");
}

TEST_CASE("a connection that closes during a wait leaves no state") {
  Served served;
  for (int i = 0; i < 50; ++i) {
    auto waiter = served.connect();
    waiter.send(WaitRequest{Views{"k", "l"}});
    waiter.send(LastWillRequest{"w" + std::to_string(i), ""});
    waiter.receive(1);
    waiter.close();
    served.await("w" + std::to_string(i));  // the server has closed it
  }
  auto next = served.connect();
  next.send(WaitRequest{Views{"k"}});
  served.witness.send(SetRequest{"k", ""});
  CHECK(next.receive(1) == zero);
  next.settle();  // no stray byte before the reply
}

TEST_CASE("a last will is executed when the connection breaks, unless it was cleared") {
  Served served;
  auto polite = served.connect(), lost = served.connect(), bad = served.connect();
  polite.send(LastWillRequest{"polite", ""});
  polite.receive(1);
  polite.send(ClearLastWillRequest{});
  polite.receive(1);
  polite.close();
  lost.send(LastWillRequest{"lost", "rank 3"});
  lost.receive(1);
  lost.close();
  CHECK(served.await("lost") == "rank 3");
  bad.send(LastWillRequest{"bad", "rank 4"});
  bad.receive(1);
  bad.send(from_hex("FF"));
  CHECK(served.await("bad") == "rank 4");
  served.witness.send(CheckRequest{Views{"polite"}});
  CHECK(served.witness.receive(1) == one);
}

TEST_CASE("the sockets have the store's options, and the port can be bound again at once") {
  std::uint16_t port = 0;
  {
    Served served;
    port = served.server.port();
    CHECK(served.server.endpoint() == fmt::format("[::]:{}", port));
    CHECK_THROWS_WITH(StoreServerThread({.port = port}), Catch::Contains("cannot listen at *:" + std::to_string(port)));
    int value = 0;
    socklen_t size = sizeof value;
    REQUIRE(::getsockopt(served.witness.fd(), IPPROTO_TCP, TCP_NODELAY, &value, &size) == 0);
    CHECK(value != 0);
    REQUIRE(::getsockopt(served.witness.fd(), SOL_SOCKET, SO_KEEPALIVE, &value, &size) == 0);
    CHECK(value != 0);
    // The descriptors are the client's and the server's: neither may leak into a child.
    for (int fd = 3; fd < 64; ++fd)
      if (const int flags = ::fcntl(fd, F_GETFD); flags >= 0 && peer_address(fd).port != 0)
        CHECK((flags & FD_CLOEXEC) != 0);
  }
  StoreServerThread again({.port = port});
  CHECK(again.port() == port);
}

TEST_CASE("without free descriptors the server keeps serving, and accepts again later") {
  Served served;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The client connects first: with the limit below the descriptors already open, the server cannot accept.
  const rlimit tight{.rlim_cur = 3, .rlim_max = before.rlim_max};
  UniqueFd held(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(served.server.port());
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  const int connected = ::connect(held.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  for (int i = 0; i < 20; ++i) served.witness.settle();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(connected == 0);
  send_all(held.get(), from_hex("00 CE F7 85 3C 07"), Deadline::in(20s));
  char answer[8];
  CHECK(receive_some(held.get(), answer, sizeof answer, Deadline::in(20s)) == 8);
}

namespace {

// Takes every free descriptor below a limit that this process then has.
class NoDescriptorFree {
 public:
  NoDescriptorFree() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit tight{.rlim_cur = 256, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &tight);
    while (const int fd = ::dup(0)) {
      if (fd < 0) break;
      taken_.emplace_back(fd);
    }
  }
  ~NoDescriptorFree() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

void connect_loopback(int fd, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(port);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

}  // namespace

TEST_CASE("without free descriptors a client that sends nothing is closed for one that does") {
  Served served({.slow_start = 1ms});
  const auto port = served.server.port();
  RawSocket silent(port), half = served.connect();
  half.settle();
  half.send(std::string(encode(PingRequest{1}), 0, 2));
  UniqueFd first(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)), second(::socket(AF_INET6, SOCK_STREAM, 0));
  served.witness.settle();
  const NoDescriptorFree full;
  for (const auto* client : {&first, &second}) {
    connect_loopback(client->get(), port);
    send_all(client->get(), from_hex("00 CE F7 85 3C") + encode(PingRequest{7}), Deadline::in(20s));
    char answer[8];
    CHECK(receive_some(client->get(), answer, sizeof answer, Deadline::in(20s)) == 4);
  }
  CHECK(silent.closed_by_server());
  CHECK(half.closed_by_server());
}

TEST_CASE("of many clients that send nothing the oldest are closed") {
  Served served({.slow_start = 0ms, .max_starting = 2});
  const auto port = served.server.port();
  RawSocket first(port), second(port), third(port), fourth(port);
  CHECK(first.closed_by_server());
  CHECK(second.closed_by_server());
  for (auto* late : {&third, &fourth}) {
    late->send(ValidateRequest{});
    late->settle();
  }
}

TEST_CASE("a server that cannot accept clients for too long reports it once, with the limit") {
  boost::asio::io_context loop;
  StoreServer server(loop, {.host = "::1"});
  std::vector<std::string> failures;
  server.on_accept_failure(10ms, [&](const Error& failure) { failures.emplace_back(failure.what()); });
  UniqueFd waiting(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const NoDescriptorFree full;
  connect_loopback(waiting.get(), server.port());
  const auto deadline = Deadline::in(20s);
  while (failures.empty() && !deadline.expired()) loop.run_for(10ms);
  loop.run_for(500ms);
  REQUIRE(failures.size() == 1);
  CHECK_THAT(failures[0], Catch::Contains("has accepted no connection for 0.01 s: Too many open files") &&
                              Catch::Contains("(ulimit -n is 256)"));
}

// Sessions

namespace {

// Answers each frame twice, closes on "bye", throws on "bad".
struct EchoHub final : SessionHub {
  SessionSender* sender = nullptr;
  std::vector<std::string> seen;
  std::map<SessionId, SessionPeer> open;

  void on_open(SessionId id, const SessionPeer& peer) override {
    open[id] = peer;
    seen.push_back("open " + peer.peer_address + " " + peer.local_address);
  }
  void on_frame(SessionId id, std::string frame) override {
    seen.push_back(frame);
    if (frame == "bad") throw Error(Errc::protocol, "a frame the hub does not like");
    sender->send(id, frame);
    sender->send(id, frame + "!");
    if (frame == "bye") sender->close(id);
    if (frame == "flood")
      for (int i = 0; i < 40; ++i) sender->send(id, std::string(1 << 20, 'f'));
  }
  void on_close(SessionId id) override {
    open.erase(id);
    seen.push_back("close");
    sender->send(id, "too late");  // ignored
  }
};

// A server with a hub, whose loop runs on a separate thread.
struct SessionServer {
  explicit SessionServer(StoreServerOptions options = {}) {
    server.emplace(loop, options);
    hub.sender = &server->session_sender();
    server->set_session_hub(&hub);
    thread = std::thread([this] { loop.run(); });
  }
  ~SessionServer() {
    boost::asio::post(loop, [this] { server.reset(); });
    thread.join();
  }
  // Runs action on the loop.
  template <class Action>
  auto on_loop(Action action) {
    std::packaged_task<decltype(action())()> task(action);
    auto result = task.get_future();
    boost::asio::post(loop, std::ref(task));
    return result.get();
  }
  std::vector<std::string> seen() {
    return on_loop([this] { return hub.seen; });
  }
  // Waits until the hub has been notified that a session closed.
  std::vector<std::string> seen_when_closed() {
    for (const auto deadline = Deadline::in(20s); !deadline.expired(); std::this_thread::yield())
      if (const auto all = seen(); !all.empty() && all.back() == "close") return all;
    FAIL("the hub was not told that a session closed");
    return {};
  }

  boost::asio::io_context loop{1};
  EchoHub hub;
  std::optional<StoreServer> server;
  std::thread thread;
};

}  // namespace

TEST_CASE("a client that has closed before it was served opens no session") {
  SessionServer served;
  std::promise<void> held, release;
  boost::asio::post(served.loop, [&] {
    held.set_value();
    release.get_future().wait();
  });
  held.get_future().wait();
  {
    auto client = RawSocket::validated(served.server->port());
    client.send(SessionRequest{"of the past"});
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    REQUIRE(::setsockopt(client.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  }
  release.set_value();
  auto next = RawSocket::validated(served.server->port());
  next.send(SessionRequest{"hello"});
  CHECK(next.receive(8 + 5) == from_hex("05 00 00 00 00 00 00 00") + "hello");
  const auto left = [&] { return served.on_loop([&] { return served.server->connections(); }); };
  for (const auto deadline = Deadline::in(20s); left() > 1 && !deadline.expired();) std::this_thread::yield();
  CHECK(left() == 1);
  CHECK(served.seen() == std::vector<std::string>{"open 127.0.0.1 127.0.0.1", "hello"});
}

TEST_CASE("a session carries frames both ways, and the hub is notified when it opens and closes") {
  SessionServer s;
  auto client = RawSocket::validated(s.server->port());
  client.send(SetRequest{"k", ""});  // ordinary requests come before the first frame
  client.settle();
  client.send(encode(SessionRequest{"one"}) + encode(SessionRequest{""}));
  const auto answers = vec("one") + vec("one!") + vec("") + vec("!");
  CHECK(client.receive(answers.size()) == answers);
  client.close();
  CHECK(s.seen_when_closed() == std::vector<std::string>{"open 127.0.0.1 127.0.0.1", "one", "", "close"});
}

TEST_CASE("a session closed by the hub ends after its frames have been sent") {
  SessionServer s;
  auto client = RawSocket::validated(s.server->port());
  client.send(encode(SessionRequest{"bye"}) + encode(SessionRequest{"dropped"}));
  const auto answers = vec("bye") + vec("bye!");
  CHECK(client.receive(answers.size()) == answers);
  CHECK(client.closed_by_server());
  CHECK(s.seen_when_closed() == std::vector<std::string>{"open 127.0.0.1 127.0.0.1", "bye", "close"});
}

TEST_CASE("a hub's error, another request and a pending wait each close a session") {
  SessionServer s;
  for (const auto& bytes : {encode(SessionRequest{"bad"}), encode(SessionRequest{"x"}) + encode(NumKeysRequest{}),
                            encode(WaitRequest{Views{"k"}}) + encode(SessionRequest{"x"})}) {
    auto client = RawSocket::validated(s.server->port());
    client.send(bytes);
    CHECK(client.closed_by_server());
  }
  s.seen_when_closed();
}

TEST_CASE("frames can be sent outside the server's own handlers") {
  SessionServer s;
  auto client = RawSocket::validated(s.server->port());
  client.send(SessionRequest{"x"});
  client.receive(vec("x").size() + vec("x!").size());
  s.on_loop([&] {
    s.hub.sender->send(s.hub.open.begin()->first, "pushed");
    CHECK_THROWS_AS(s.hub.sender->send(s.hub.open.begin()->first, std::string(max_value_bytes + 1, 'x')), Error);
    return true;
  });
  CHECK(client.receive(vec("pushed").size()) == vec("pushed"));
}

TEST_CASE("a session that does not read is closed when its queue is full") {
  SessionServer s({.max_queued_bytes = 8 << 20});
  auto client = RawSocket::validated(s.server->port());
  client.send(SessionRequest{"flood"});
  CHECK(s.seen_when_closed().size() == 3);  // the client did not read at all
}

TEST_CASE("a server with idle clients uses no processor time, however busy they were before") {
  boost::asio::io_context loop{1};
  const StoreServer server(loop, {.host = "127.0.0.1"});
  auto socket = RawSocket::validated(server.port());
  auto busy = std::async(std::launch::async, [&] {
    for (int i = 0; i < 10'000; ++i) socket.settle();
  });
  while (busy.wait_for(0s) != std::future_status::ready) loop.run_one_for(10ms);
  CHECK(loop.poll() <= 1);  // it is the poll after the last request
  for (int i = 0; i < 100; ++i) CHECK(loop.poll() == 0);
}

TEST_CASE("a server can be destroyed while its clients are busy and its loop keeps running") {
  boost::asio::io_context loop{1};
  std::optional<StoreServer> server;
  server.emplace(loop, StoreServerOptions{});
  auto waiting = RawSocket::validated(server->port());
  waiting.send(WaitRequest{Views{"k"}});
  loop.poll();
  server.reset();
  loop.poll();
  CHECK(waiting.closed_by_server());
  CHECK(loop.stopped());  // nothing is left to run
}

TEST_CASE("a server tells when a client has set keys whose names have the awaited part") {
  asio::io_context loop;
  StoreServer server(loop, {.host = "127.0.0.1"});
  std::vector<std::string> seen;
  server.on_set("/able/", [&] { seen.push_back(server.find("/able/1").value_or("none")); });
  auto client = RawSocket(server.port());
  client.send(encode(ValidateRequest{}) + encode(SetRequest{"/other", "0"}) + encode(SetRequest{"/able/0", "0"}) +
              encode(SetRequest{"/able/1", "1"}));
  while (seen.empty() || seen.back() != "1") loop.run_one();
  const auto told = seen.size();
  CHECK(told <= 2);                                 // once for several that are set at once
  server.session_sender().set_key("/able/2", "1");  // not by a client
  loop.poll();
  CHECK(seen.size() == told);
}

TEST_CASE("a server that announces its end is there until its last client has gone, and knows which have learnt it") {
  StoreServerThread server;
  const auto connect = [&] {
    return std::make_unique<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = server.port()}, Deadline::in(30s));
  };
  auto first = connect(), second = connect();
  CHECK_FALSE(first->end_announced(Deadline::in(30s)));
  server.announce_end();
  CHECK(first->end_announced(Deadline::in(30s)));
  CHECK_FALSE(server.await_end_known(Deadline::in(0s)));
  CHECK(second->end_announced(Deadline::in(30s)));
  CHECK(server.await_end_known(Deadline::in(30s)));
  first.reset();
  second->set("key", "value", Deadline::in(30s));
  CHECK(connect()->get("key", Deadline::in(30s)) == "value");
  CHECK_FALSE(server.await_unused(Deadline::in(0s)));
  second.reset();
  CHECK(server.await_unused(Deadline::in(30s)));
  CHECK_THROWS(TcpStore({.host = "127.0.0.1", .port = server.port()}, Deadline::in(1ms)));
}

TEST_CASE("a server without clients that announces its end closes at once") {
  StoreServerThread server;
  server.announce_end();
  CHECK(server.await_end_known(Deadline::in(30s)));
  CHECK(server.await_unused(Deadline::in(30s)));
}
