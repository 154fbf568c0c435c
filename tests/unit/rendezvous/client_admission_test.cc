#include "ddprun/rendezvous/trust/client_admission.h"

#include <string>
#include <utility>

#include "ddprun/rendezvous/trust/client_handshake.h"
#include "ddprun/rendezvous/trust/owner_question.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

constexpr uid_t user = 1000, other_user = 1001;
const std::string validate("\0\xce\xf7\x85\x3c", 5);

std::shared_ptr<const Credentials> credentials() {
  Secret::Bytes bytes;
  bytes.fill(1);
  return std::make_shared<Credentials>(Secret(bytes), "job", Credentials::Transport::clear);
}

SocketEnds from(const std::string& address, std::uint16_t port = 4000) {
  return {.own = {address, port}, .peer = {"10.0.0.1", 29400}};
}

// The kernel of this test knows the sockets of one user at each port.
struct Fixture {
  explicit Fixture(std::shared_ptr<const Credentials> known)
      : admission{.credentials = std::move(known), .user = user}, clients(admission, [this](const SocketEnds& ends) {
          const auto found = owners.find(ends.own.port);
          return found == owners.end() ? std::nullopt : std::optional(found->second);
        }) {}

  // The number of actions of this type, of which the last is stored.
  template <class T>
  static std::optional<T> only(ClientAdmission::Actions actions) {
    if (actions.size() != 1 || !std::holds_alternative<T>(actions[0])) return std::nullopt;
    return std::move(std::get<T>(actions[0]));
  }

  // A connection that has proved that it knows the token and answers for its host.
  void agent(ClientAdmission::Id id, const std::string& address) {
    clients.opened(id, from(address));
    ClientHandshake handshake(*admission.credentials);
    while (clients.is_pending(id))
      for (auto& action : clients.received(id, handshake.take_output())) {
        if (const auto* send = std::get_if<ClientAdmission::Send>(&action)) handshake.feed(send->bytes);
        if (const auto* admit = std::get_if<ClientAdmission::Admit>(&action)) REQUIRE(admit->by_token);
      }
  }

  Admission admission;
  std::map<std::uint16_t, uid_t> owners;
  ClientAdmission clients;
};

}  // namespace

TEST_CASE("a plain client of this host is admitted if its socket is of the job's user") {
  Fixture f(GENERATE(false, true) ? credentials() : nullptr);
  f.owners = {{4000, user}, {4001, other_user}};
  f.clients.opened(1, from("10.0.0.1", 4000));
  f.clients.opened(2, from("10.0.0.1", 4001));
  f.clients.opened(3, from("127.0.0.1", 4002));
  const auto admitted = Fixture::only<ClientAdmission::Admit>(f.clients.received(1, validate));
  REQUIRE(admitted);
  CHECK_FALSE(admitted->by_token);
  CHECK(admitted->rest == validate);
  const auto foreign = Fixture::only<ClientAdmission::Refuse>(f.clients.received(2, validate));
  REQUIRE(foreign);
  CHECK(foreign->reason.find("user 1001") != std::string::npos);
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.received(3, validate)));
  CHECK(f.clients.pending() == 0);
}

TEST_CASE("a plain client of root on this host is admitted unless that is turned off") {
  Fixture f(nullptr);
  f.owners = {{4000, 0}};
  f.clients.opened(1, from("10.0.0.1", 4000));
  CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.received(1, validate)));
  f.admission.admits_root = false;
  f.clients.opened(2, from("10.0.0.1", 4000));
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.received(2, validate)));
}

TEST_CASE("without a token nobody from another host is admitted") {
  Fixture f(nullptr);
  f.clients.opened(1, from("10.0.0.2"));
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.received(1, validate)));
}

TEST_CASE("a plain client of another host is admitted by the word of an agent there") {
  Fixture f(credentials());
  f.agent(10, "10.0.0.2");
  f.agent(11, "10.0.0.3");
  f.clients.agent_opened(10, "10.0.0.2");
  f.clients.agent_opened(11, "10.0.0.3");
  f.clients.opened(20, from("10.0.0.2", 5000));
  auto actions = f.clients.received(20, validate);
  REQUIRE(actions.size() == 2);
  CHECK(std::holds_alternative<ClientAdmission::Hold>(actions[0]));
  const auto& ask = std::get<ClientAdmission::Ask>(actions[1]);
  CHECK(ask.agent == 10);
  const auto question = decode_owner_question(ask.question);
  CHECK(question.number == 20);
  CHECK(question.ends.own == SocketEnds::End{"10.0.0.2", 5000});
  CHECK(f.clients.answered(11, 20).empty());  // it was not asked
  CHECK(f.clients.answered(10, 21).empty());  // of no client
  CHECK(f.clients.is_pending(20));
  SECTION("yes") {
    const auto admitted = Fixture::only<ClientAdmission::Admit>(f.clients.answered(10, 20));
    REQUIRE(admitted);
    CHECK_FALSE(admitted->by_token);
    CHECK(admitted->rest == validate);
    CHECK(f.clients.answered(10, 20).empty());  // once
  }
  SECTION("no") {
    CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.answered(10, -20)));
  }
  SECTION("no answer in time") {
    CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.expired(20)));
    CHECK(f.clients.answered(10, 20).empty());
  }
}

TEST_CASE("a plain client waits for the agent of its host") {
  Fixture f(credentials());
  f.clients.opened(20, from("10.0.0.2", 5000));
  CHECK(Fixture::only<ClientAdmission::Hold>(f.clients.received(20, validate)));
  f.agent(10, "10.0.0.2");
  const auto ask = Fixture::only<ClientAdmission::Ask>(f.clients.agent_opened(10, "10.0.0.2"));
  REQUIRE(ask);
  CHECK(ask->agent == 10);
  CHECK(f.clients.agent_opened(10, "10.0.0.2").empty());  // a second time
}

TEST_CASE("where several agents share an address, one of them has to say yes") {
  Fixture f(credentials());
  f.agent(10, "10.0.0.2");
  f.agent(11, "10.0.0.2");
  f.clients.agent_opened(10, "10.0.0.2");
  f.clients.agent_opened(11, "10.0.0.2");
  f.clients.opened(20, from("10.0.0.2", 5000));
  REQUIRE(f.clients.received(20, validate).size() == 3);
  CHECK(f.clients.answered(10, -20).empty());
  SECTION("yes") {
    CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.answered(11, 20)));
  }
  SECTION("no") {
    CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.answered(11, -20)));
  }
  SECTION("the other one closes, and another answers in its place") {
    CHECK(f.clients.closed(11).empty());
    CHECK(f.clients.is_pending(20));
    f.agent(12, "10.0.0.2");
    CHECK(Fixture::only<ClientAdmission::Ask>(f.clients.agent_opened(12, "10.0.0.2")));
    CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.answered(12, -20)));
  }
}

TEST_CASE("the oldest pending connection is known, and a closed one is forgotten") {
  Fixture f(credentials());
  CHECK_FALSE(f.clients.oldest());
  for (const ClientAdmission::Id id : {5, 6, 7}) f.clients.opened(id, from("10.0.0.2"));
  CHECK(f.clients.oldest() == 5);
  f.clients.closed(5);
  CHECK(f.clients.oldest() == 6);
  CHECK(f.clients.expired(5).empty());
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.expired(6)));
  CHECK(f.clients.pending() == 1);
}
