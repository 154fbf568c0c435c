#include "rendezvous/membership/incompatible_agents.h"

#include <map>
#include <string>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using Kind = IncompatibleAgent::Kind;

namespace {

// A server that knows only the keys of its store.
struct Store final : SessionSender {
  void send(SessionId, std::string) override {}
  void close(SessionId) override {}
  void set_key(std::string_view key, std::string_view value) override { keys[std::string(key)] = value; }
  void erase_key(std::string_view key) override { keys.erase(std::string(key)); }
  std::map<std::string, std::string> keys;
};

const IncompatibleAgent torchrun_c10d{.kind = Kind::torchrun_c10d, .run_id = "a", .address = "10.0.0.1"};
const IncompatibleAgent torchrun_static{.kind = Kind::static_, .run_id = "a", .address = "10.0.0.2"};
const IncompatibleAgent ddprun_static{.kind = Kind::static_, .run_id = "a", .ddprun = true, .address = "10.0.0.3"};

struct Connected {
  Store store;
  IncompatibleAgents agents{store};
  std::string key = static_refusal_wire_key("a");
};

}  // namespace

TEST_CASE("an agent of torchrun is refused by the end of its connection") {
  Connected server;
  server.agents.add(1, torchrun_static);
  CHECK_THROWS_AS(server.agents.refuse(torchrun_static), Error);
  CHECK(server.agents.refused() == 0);
  CHECK_FALSE(server.agents.closed(1));
}

TEST_CASE("a static agent of ddprun reads why it is refused until the last one of its run id has gone") {
  Connected server;
  for (const SessionId id : {1, 2}) server.agents.add(id, ddprun_static);
  server.agents.refuse(ddprun_static);
  CHECK(server.agents.refused() == 2);
  CHECK(server.store.keys.at(server.key) == refusal_text(ddprun_static));
  CHECK(server.agents.closed(1));
  CHECK(server.store.keys.contains(server.key));
  CHECK(server.agents.closed(2));
  CHECK(server.store.keys.empty());
  CHECK(server.agents.refused() == 0);
}

TEST_CASE("agents of two kinds at one run id are refused if one of them is ddprun's") {
  Connected server;
  server.agents.add(1, ddprun_static);
  server.agents.refuse_mixed_kinds(ddprun_static);
  CHECK(server.store.keys.empty());
  server.agents.add(2, torchrun_c10d);
  CHECK_THROWS_AS(server.agents.refuse_mixed_kinds(torchrun_c10d), Error);
  CHECK(server.store.keys.at(server.key) == conflict_text(torchrun_c10d));
}

TEST_CASE("torchrun's agents of two kinds at one run id are left alone") {
  Connected server;
  for (const auto& agent : {torchrun_static, torchrun_c10d}) {
    server.agents.add(agent.kind == Kind::static_ ? 1 : 2, agent);
    CHECK_NOTHROW(server.agents.refuse_mixed_kinds(agent));
  }
}

TEST_CASE("a node is refused for the agent of another rendezvous at its run id, and that agent with it") {
  Connected server;
  server.agents.add(1, ddprun_static);
  CHECK(server.agents.refuse_for_job("b") == std::nullopt);
  CHECK(server.store.keys.empty());
  CHECK(server.agents.refuse_for_job("a") == conflict_text(ddprun_static));
  CHECK(server.store.keys.at(server.key) == refusal_text(ddprun_static));
}
