#include "rendezvous/trust/client_admission.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "rendezvous/trust/client_handshake.h"
#include "rendezvous/trust/owner_question.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

constexpr uid_t user = 1000, other_user = 1001;
const std::string validate("\0\xce\xf7\x85\x3c", 5);

std::shared_ptr<const Credentials> credentials(Credentials::Transport transport = Credentials::Transport::clear) {
  Secret::Bytes bytes;
  bytes.fill(1);
  return std::make_shared<Credentials>(Secret(bytes), "job", transport);
}

SocketEnds from(const std::string& address, std::uint16_t port = 4000) {
  return {.own = {address, port}, .peer = {"10.0.0.1", 29400}};
}

// The kernel of this test knows the ends of the connections, and the socket of one user at each port, whose inode is
// the number of the port.
struct Fixture {
  explicit Fixture(std::shared_ptr<const Credentials> known)
      : admission{.credentials = std::move(known), .user = user},
        clients(admission, {.ends_of = [this](auto id) { return ends.at(id); },
                            .owner_of = [this](const auto& client) { return owner_of(client); },
                            .is_of_job = [this](auto inode) { return job.contains(inode); }}) {}

  std::optional<SocketOwner> owner_of(const SocketEnds& client) const {
    const auto found = owners.find(client.own.port);
    if (found == owners.end()) return std::nullopt;
    return SocketOwner{.user = found->second, .inode = client.own.port};
  }
  void open(ClientAdmission::Id id, const SocketEnds& client) {
    ends[id] = client;
    clients.opened(id);
  }

  // Returns the only action if it is of this type; otherwise nullopt.
  template <class T>
  static std::optional<T> only(ClientAdmission::Actions actions) {
    if (actions.size() != 1 || !std::holds_alternative<T>(actions[0])) return std::nullopt;
    return std::move(std::get<T>(actions[0]));
  }

  // Adds a connection that has proved that it knows the token and answers for its host.
  void agent(ClientAdmission::Id id, const std::string& address) {
    open(id, from(address));
    ClientHandshake handshake(*admission.credentials);
    while (clients.is_open(id))
      for (auto& action : clients.received(id, handshake.take_output())) {
        if (const auto* send = std::get_if<ClientAdmission::Send>(&action)) handshake.feed(send->bytes);
        if (const auto* admit = std::get_if<ClientAdmission::Admit>(&action)) REQUIRE(admit->by_token);
      }
  }

  Admission admission;
  std::map<ClientAdmission::Id, SocketEnds> ends;
  std::map<std::uint16_t, uid_t> owners;
  std::set<std::uint64_t> job;
  ClientAdmission clients;
};

}  // namespace

TEST_CASE("a plain client of this host is admitted if its socket is of the job's user") {
  Fixture f(GENERATE(false, true) ? credentials() : nullptr);
  f.owners = {{4000, user}, {4001, other_user}};
  f.open(1, from("10.0.0.1", 4000));
  f.open(2, from("10.0.0.1", 4001));
  f.open(3, from("127.0.0.1", 4002));
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
  f.open(1, from("10.0.0.1", 4000));
  CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.received(1, validate)));
  f.admission.admits_root = false;
  f.open(2, from("10.0.0.1", 4000));
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.received(2, validate)));
}

TEST_CASE("without a token nobody from another host is admitted") {
  Fixture f(nullptr);
  f.open(1, from("10.0.0.2"));
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.received(1, validate)));
}

TEST_CASE("a plain client of another host is admitted by the word of an agent there") {
  Fixture f(credentials());
  f.agent(10, "10.0.0.2");
  f.agent(11, "10.0.0.3");
  f.clients.agent_opened(10, "10.0.0.2");
  f.clients.agent_opened(11, "10.0.0.3");
  f.open(20, from("10.0.0.2", 5000));
  auto actions = f.clients.received(20, validate);
  REQUIRE(actions.size() == 2);
  CHECK(std::holds_alternative<ClientAdmission::Hold>(actions[0]));
  const auto& ask = std::get<ClientAdmission::Ask>(actions[1]);
  CHECK(ask.agent == 10);
  const auto question = decode_owner_question(ask.question);
  CHECK(question.number == 20);
  CHECK(question.ends.own == SocketEnds::End{"10.0.0.2", 5000});
  CHECK(f.clients.answered(11, 20).empty());  // it was not asked
  CHECK(f.clients.answered(10, 21).empty());  // there is no such client
  CHECK(f.clients.is_held(20));
  SECTION("yes") {
    const auto admitted = Fixture::only<ClientAdmission::Admit>(f.clients.answered(10, 20));
    REQUIRE(admitted);
    CHECK_FALSE(admitted->by_token);
    CHECK(admitted->rest == validate);
    CHECK(f.clients.answered(10, 20).empty());  // it answers only once
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
  f.open(20, from("10.0.0.2", 5000));
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
  f.open(20, from("10.0.0.2", 5000));
  REQUIRE(f.clients.received(20, validate).size() == 3);
  CHECK(f.clients.answered(10, -20).empty());
  SECTION("yes") {
    CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.answered(11, 20)));
  }
  SECTION("no") {
    CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.answered(11, -20)));
  }
  SECTION("the other one closes, and another answers in its place") {
    f.clients.closed(11);
    CHECK(f.clients.is_held(20));
    f.agent(12, "10.0.0.2");
    CHECK(Fixture::only<ClientAdmission::Ask>(f.clients.agent_opened(12, "10.0.0.2")));
    CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.answered(12, -20)));
  }
}

TEST_CASE("the oldest pending connection is known, and a closed one is forgotten") {
  Fixture f(credentials());
  CHECK_FALSE(f.clients.oldest_pending());
  for (const ClientAdmission::Id id : {5, 6, 7}) f.open(id, from("10.0.0.2"));
  CHECK(f.clients.oldest_pending() == 5);
  f.clients.closed(5);
  CHECK(f.clients.oldest_pending() == 6);
  CHECK(f.clients.expired(5).empty());
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.expired(6)));
  CHECK(f.clients.pending() == 1);
}

TEST_CASE("held clients and pending ones are counted apart, and neither keeps the other out") {
  Fixture f(credentials());
  f.admission.max_pending = 2;
  f.admission.max_held = 3;
  for (const ClientAdmission::Id id : {1, 2, 3}) {
    f.open(id, from("10.0.0.2", static_cast<std::uint16_t>(5000 + id)));
    CHECK(f.clients.pending() == 1);
    CHECK(Fixture::only<ClientAdmission::Hold>(f.clients.received(id, validate)));
  }
  CHECK(f.clients.held() == 3);
  CHECK(f.clients.pending() == 0);
  CHECK_FALSE(f.clients.oldest_pending());
  f.open(4, from("10.0.0.2", 5004));
  const auto actions = f.clients.received(4, validate);
  REQUIRE(actions.size() == 2);
  CHECK(std::get<ClientAdmission::Refuse>(actions[0]).id == 1);  // the oldest is refused
  CHECK(std::get<ClientAdmission::Hold>(actions[1]).id == 4);
  CHECK(f.clients.held() == 3);
  f.clients.closed(2);
  CHECK(f.clients.held() == 2);
  f.agent(10, "10.0.0.2");
  CHECK(f.clients.agent_opened(10, "10.0.0.2").size() == 2);
  CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.answered(10, 3)));
  CHECK(f.clients.held() == 1);
}

TEST_CASE("where the job counts, a process of its user that is none of the job is refused") {
  Fixture f(nullptr);
  f.admission.clients = Admission::Clients::of_job;
  f.owners = {{4000, user}, {4001, user}, {4002, 0}};
  f.job = {4000};
  f.open(1, from("10.0.0.1", 4000));
  f.open(2, from("10.0.0.1", 4001));
  f.open(3, from("10.0.0.1", 4002));
  CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.received(1, validate)));
  const auto refused = Fixture::only<ClientAdmission::Refuse>(f.clients.received(2, validate));
  REQUIRE(refused);
  CHECK(refused->reason.find("no process of the job") != std::string::npos);
  CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.received(3, validate)));  // the socket is root's
}

TEST_CASE("a process of the job whose user is root is told from others of root") {
  Fixture f(nullptr);
  f.admission.clients = Admission::Clients::of_job;
  f.admission.user = 0;
  f.owners = {{4000, 0}, {4001, 0}};
  f.job = {4000};
  f.open(1, from("10.0.0.1", 4000));
  f.open(2, from("10.0.0.1", 4001));
  CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.received(1, validate)));
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.received(2, validate)));
}

TEST_CASE("another agent of the server's host is asked about a process that is not of this agent") {
  Fixture f(credentials());
  f.admission.clients = Admission::Clients::of_job;
  f.owners = {{5000, user}, {5001, other_user}};
  f.agent(10, "10.0.0.1");
  f.clients.agent_opened(10, "10.0.0.1");
  f.open(20, from("10.0.0.1", 5000));
  CHECK(f.clients.received(20, validate).size() == 2);
  CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.answered(10, 20)));
  f.open(21, from("10.0.0.1", 5001));
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.received(21, validate)));
}

TEST_CASE("a client whose first message proves that it knows the key no longer counts as unknown") {
  const auto known = credentials(Credentials::Transport::tls);
  Fixture f(known);
  f.open(1, from("10.0.0.2"));
  f.open(2, from("10.0.0.2"));
  CHECK(f.clients.pending() == 2);
  ClientHandshake client(*known);
  const auto answer = Fixture::only<ClientAdmission::Send>(f.clients.received(1, client.take_output()));
  REQUIRE(answer);
  CHECK(f.clients.pending() == 1);
  CHECK(f.clients.oldest_pending() == 2);
  client.feed(answer->bytes);
  CHECK(Fixture::only<ClientAdmission::Admit>(f.clients.received(1, client.take_output())));
  f.open(3, from("10.0.0.2"));
  CHECK(f.clients.received(3, ClientHandshake(*known).take_output()).size() == 1);
  CHECK(Fixture::only<ClientAdmission::Refuse>(f.clients.expired(3)));
  CHECK(f.clients.pending() == 1);
}
