// A store server that requires authentication, over loopback and the machine's other addresses.
#include <algorithm>
#include <atomic>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "rendezvous/hosting/hosted_endpoint.h"
#include "rendezvous/membership/session_client.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/membership/session_request.h"
#include "rendezvous/store/authenticate.h"
#include "rendezvous/store/store_server_thread.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/store/tcp_store.h"
#include "rendezvous/trust/authentication_error.h"
#include "rendezvous/trust/client_handshake.h"
#include "tests/support/accept.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/as_user.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/store_junk.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using ddprun::testing::allocated_bytes;
using ddprun::testing::AsUser;
using ddprun::testing::RawSocket;
using ddprun::testing::StoreJunk;
using Transport = Credentials::Transport;

namespace {

constexpr uid_t somebody_else = 65533;

Deadline soon() {
  return Deadline::in(20s);
}

std::shared_ptr<const Credentials> credentials(unsigned char fill, Transport transport = Transport::tls) {
  Secret::Bytes bytes;
  bytes.fill(fill);
  return std::make_shared<Credentials>(Secret(bytes), "job", transport);
}

// Returns options that refuse plain clients, since no process has this user.
StoreServerOptions token_only(std::shared_ptr<const Credentials> known) {
  return {.host = "127.0.0.1",
          .admission = std::make_shared<Admission>(
              Admission{.credentials = std::move(known), .user = somebody_else, .admits_root = false})};
}

TcpStoreOptions client(const StoreServerThread& server, std::shared_ptr<const Credentials> known) {
  return {.host = "127.0.0.1", .port = server.port(), .credentials = std::move(known)};
}

// Returns the error of one attempt to authenticate.
std::string refusal_of(const StoreServerThread& server, const Credentials& known) {
  const auto fd = connect_once("127.0.0.1", server.port(), soon());
  try {
    authenticate(fd.get(), known, soon());
  } catch (const AuthenticationError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a store is used over TLS and after a challenge as over plain TCP") {
  const auto transport = GENERATE(Transport::tls, Transport::clear);
  StoreServerThread server(token_only(credentials(1, transport)));
  TcpStore a(client(server, credentials(1, transport)), soon()), b(client(server, credentials(1, transport)), soon());
  REQUIRE(a.has_ddprun_extensions());
  const std::string large(5'000'000, 'v');
  a.set("large", large, soon());
  CHECK(b.get("large", soon()) == large);
  std::thread setter([&] { b.set("later", "1", soon()); });
  CHECK(a.get("later", soon()) == "1");
  setter.join();
  CHECK_THROWS_AS(a.get("never", Deadline::in(1ms)), Error);
  CHECK(a.add("counter", 2, soon()) == 2);
  std::thread waker([&] { a.wake(); });
  CHECK_THROWS_AS(a.wait({"never"}, soon()), Error);
  waker.join();
  CHECK(a.add("counter", 2, soon()) == 4);
}

TEST_CASE("large replies to a client that reads late are delivered over TLS") {
  StoreServerThread server(token_only(credentials(1)));
  TcpStore writer(client(server, credentials(1)), soon());
  std::vector<Store::KeyValue> pairs;
  std::vector<std::string> keys;
  for (int i = 0; i < 30; ++i) {
    keys.push_back(std::to_string(i));
    pairs.emplace_back(keys.back(), std::string(1'000'000, static_cast<char>('a' + i % 26)));
  }
  writer.multi_set(pairs, soon());
  TcpStore reader(client(server, credentials(1)), soon());
  const auto values = reader.multi_get(keys, soon());
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == pairs[i].second);
}

TEST_CASE("a plain client of the job's user is admitted on the server's host, without a token") {
  StoreServerThread server({.host = "127.0.0.1",
                            .admission = std::make_shared<Admission>(
                                Admission{.credentials = GENERATE(false, true) ? credentials(1) : nullptr})});
  TcpStore store(client(server, nullptr), soon());
  store.set("k", "v", soon());
  CHECK(store.get("k", soon()) == "v");
}

TEST_CASE("a client is refused with a wrong token, no token and another transport") {
  StoreServerThread server(token_only(credentials(1)));
  CHECK(refusal_of(server, *credentials(2)).find("does not know the token") != std::string::npos);
  CHECK_FALSE(refusal_of(server, *credentials(1, Transport::clear)).empty());
  CHECK(RawSocket::validated(server.port()).closed_by_server());
  StoreServerThread open({.host = "127.0.0.1"});
  CHECK(refusal_of(open, *credentials(1)).find("requires no token") != std::string::npos);
}

TEST_CASE("a client gives up on a server that keeps refusing it, long before its deadline") {
  StoreServerThread server(token_only(credentials(1)));
  auto options = client(server, credentials(2));
  options.refusal_patience = 0ms;
  CHECK_THROWS_AS(TcpStore(options, Deadline::in(10min)), AuthenticationError);
}

TEST_CASE("another user of the host is refused") {
  if (::geteuid() != 0) SKIP("needs root, to become another user");
  StoreServerThread server({.host = "127.0.0.1", .admission = std::make_shared<Admission>(Admission{})});
  const auto connect = [&] {
    const AsUser other(somebody_else);
    return RawSocket::validated(server.port());
  };
  auto socket = connect();
  CHECK(socket.closed_by_server());
}

// The kernel would name root as its owner.
TEST_CASE("what a client sent before it closed is not admitted by the user of root") {
  if (::geteuid() != 0) SKIP("needs root, as the user of the job");
  StoreServerThread server({.host = "127.0.0.1", .admission = std::make_shared<Admission>(Admission{})});
  TcpStore witness(client(server, nullptr), soon());
  for (int i = 0; i < 200; ++i) {
    const AsUser other(somebody_else);
    auto socket = RawSocket::validated(server.port());
    socket.send(AddRequest{"/intruders", 1});
    socket.close();
  }
  TcpStore(client(server, nullptr), soon());  // the server has seen all of them by now
  CHECK_FALSE(witness.check({"intruders"}, soon()));
}

TEST_CASE("a client that has not authenticated after the limit is closed") {
  auto options = token_only(credentials(1));
  options.admission = std::make_shared<Admission>(Admission{.credentials = credentials(1), .timeout = 50ms});
  StoreServerThread server(options);
  RawSocket silent(server.port());
  CHECK(silent.closed_by_server());
  RawSocket slow(server.port());
  slow.send("\x16\x03");
  CHECK(slow.closed_by_server());
}

TEST_CASE("silent connections beyond the limit wait in the kernel's queue and keep nobody out for long") {
  auto options = token_only(credentials(1));
  options.admission = std::make_shared<Admission>(Admission{.credentials = credentials(1),
                                                            .user = somebody_else,
                                                            .admits_root = false,
                                                            .timeout = 10min,
                                                            .max_pending = 4,
                                                            .crowded = 20ms});
  StoreServerThread server(options);
  std::vector<RawSocket> silent;
  for (int i = 0; i < 40; ++i) silent.emplace_back(server.port());
  TcpStore store(client(server, credentials(1)), soon());
  CHECK(store.add("served", 1, soon()) == 1);
  const auto closed = [&] {
    return std::count_if(silent.begin(), silent.end(), [](const auto& each) {
      char byte = 0;
      return ::recv(each.fd(), &byte, 1, MSG_DONTWAIT) == 0;
    });
  };
  const auto deadline = soon();
  while (closed() < 36 && !deadline.expired()) std::this_thread::sleep_for(5ms);
  CHECK(closed() == 36);  // all but four
}

TEST_CASE("sixty clients that come at once are all served with four places") {
  auto options = token_only(credentials(1));
  options.admission = std::make_shared<Admission>(Admission{.credentials = credentials(1),
                                                            .user = somebody_else,
                                                            .admits_root = false,
                                                            .timeout = 10min,
                                                            .max_pending = 4,
                                                            .crowded = 10min});
  StoreServerThread server(options);
  std::vector<std::thread> threads;
  std::atomic<int> served = 0;
  for (int i = 0; i < 60; ++i)
    threads.emplace_back([&] {
      TcpStore store(client(server, credentials(1)), soon());
      store.add("served", 1, soon());
      ++served;
    });
  for (auto& thread : threads) thread.join();
  CHECK(served == 60);
}

TEST_CASE("thousands of connections of junk, replays and wrong tokens let nobody in") {
  constexpr int connections = 3'000;
  StoreServerThread server(token_only(credentials(1)));
  TcpStore witness(client(server, credentials(1)), soon());
  ClientHandshake wrong_tls(*credentials(2));
  const std::string hello = wrong_tls.take_output();
  StoreJunk junk(7);
  std::size_t half_way = 0;
  for (int i = 0; i < connections; ++i) {
    RawSocket socket(server.port());
    try {
      switch (i % 4) {
        case 0:
          socket.send(junk.noise(junk.below(600)));
          break;
        case 1:
          socket.send(encode(ValidateRequest{}) + encode(AddRequest{"/intruders", 1}) + junk.message());
          break;
        case 2:
          socket.send(hello + junk.noise(100));
          break;
        default:
          socket.send(hello.substr(0, 1 + junk.below(static_cast<std::uint32_t>(hello.size() - 1))));
      }
    } catch (const Error&) {  // closed while it was sending
    }
    if (i == connections / 2) half_way = allocated_bytes();
  }
  CHECK_FALSE(witness.check({"intruders"}, soon()));
  CHECK(TcpStore(client(server, credentials(1)), soon()).num_keys(soon()) == 0);
  CHECK(allocated_bytes() < half_way + (4 << 20));
}

namespace {

struct Endpoint {
  explicit Endpoint(std::shared_ptr<const Credentials> known)
      : hosted(loop, std::make_unique<StoreServer>(loop, token_only(std::move(known)))),
        thread([this] { loop.run(); }) {}
  ~Endpoint() {
    loop.stop();
    thread.join();
  }
  boost::asio::io_context loop;
  HostedEndpoint hosted;
  std::thread thread;
};

// Returns the last event of an agent that joins.
std::string outcome_of_joining(boost::asio::io_context& loop, SessionClient& agent, const JobPolicy& policy) {
  std::string outcome;
  agent.join({.id = "a", .host = "a"}, policy, [&](const RendezvousEvent& event) {
    if (const auto* lost = std::get_if<ContactLost>(&event)) outcome = lost->error.what();
    if (std::holds_alternative<RoundProposed>(event)) agent.ready(0, 1);
    if (std::holds_alternative<RoundStarted>(event)) outcome = "started";
    if (!outcome.empty()) loop.stop();
  });
  loop.run();
  return outcome;
}

std::string outcome_of_joining(std::uint16_t port, std::shared_ptr<const Credentials> known) {
  boost::asio::io_context loop;
  SessionClient agent(loop,
                      {.host = "127.0.0.1", .port = port, .credentials = std::move(known), .refusal_patience = 0ms});
  return outcome_of_joining(loop, agent, {.join_timeout = 60s});
}

}  // namespace

TEST_CASE("an agent that knows the token joins, one with another is refused, one without is told so") {
  const auto transport = GENERATE(Transport::tls, Transport::clear);
  Endpoint endpoint(credentials(1, transport));
  const auto port = endpoint.hosted.port();
  CHECK(outcome_of_joining(port, credentials(1, transport)) == "started");
  CHECK(outcome_of_joining(port, credentials(2, transport)).find("does not know the token") != std::string::npos);
  const auto told = outcome_of_joining(port, nullptr);
  CHECK(told.find(fmt::format("version {} of the session protocol sent no token", session_protocol_version)) !=
        std::string::npos);
}

TEST_CASE("the agent of a job of one node joins the server of its process without a token, and of several does not") {
  boost::asio::io_context loop;
  HostedEndpoint hosted(loop, std::make_unique<StoreServer>(loop, token_only(credentials(1))));
  SessionClient agent(loop, {.host = "127.0.0.1",
                             .port = 1,  // nobody listens there
                             .within_process = [&] { return hosted.server().connect_within(); }});
  CHECK(outcome_of_joining(loop, agent, {.max_nodes = 1, .join_timeout = 60s}) == "started");
  loop.restart();
  SessionClient one_of_two(
      loop, {.host = "127.0.0.1", .port = 1, .within_process = [&] { return hosted.server().connect_within(); }});
  CHECK_THAT(outcome_of_joining(loop, one_of_two, {.run_id = "other", .max_nodes = 2, .join_timeout = 100ms}),
             Catch::Contains("127.0.0.1:1"));
}

// The server acts like one that closes a connection with bytes of it unread.
TEST_CASE(
    "a connection that is reset during authentication counts as a refusal, and one that cannot be made does not") {
  const auto listener = listen_on("127.0.0.1", 0);
  const auto port = local_address(listener.get()).port;
  std::thread server([&] {
    UniqueFd accepted;
    while (!accepted) accepted = testing::accept_next(listener.get());
    pollfd unread{.fd = accepted.get(), .events = POLLIN, .revents = 0};
    ::poll(&unread, 1, -1);
  });
  const auto outcome = outcome_of_joining(port, credentials(1));
  server.join();
  CHECK(outcome.find("requires no token, or has another one") != std::string::npos);
  const TcpStoreOptions nobody{.host = "127.0.0.1", .port = 1, .credentials = credentials(1), .refusal_patience = 0ms};
  CHECK_THROWS_WITH(TcpStore(nobody, Deadline::in(50ms)), Catch::Contains("no connection"));
}

TEST_CASE("status is answered to who knows the token") {
  Endpoint endpoint(credentials(1));
  const auto port = endpoint.hosted.port();
  CHECK(ask_for_status({"127.0.0.1", port, credentials(1)}, "", soon()).empty());
  CHECK_THROWS_AS(ask_for_status({"127.0.0.1", port, credentials(2)}, "", soon()), Error);
  CHECK_THROWS_AS(ask_for_status({"127.0.0.1", port}, "", soon()), Error);
}

TEST_CASE("only who knows the token may answer for its host") {
  StoreServerThread server({.host = "127.0.0.1", .admission = std::make_shared<Admission>(Admission{})});
  auto socket = RawSocket::validated(server.port());
  socket.settle();
  socket.send(ConfirmRequest{});
  CHECK(socket.closed_by_server());
}
