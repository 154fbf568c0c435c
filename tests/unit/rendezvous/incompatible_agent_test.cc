#include "rendezvous/membership/incompatible_agent.h"

#include "tests/support/catch.h"

using namespace ddprun;
using Kind = IncompatibleAgent::Kind;

TEST_CASE("torchrun's c10d rendezvous is recognised by its state key") {
  const auto agent = parse_incompatible_agent("/torch.rendezvous.job-1", "Y2FuaW1hZGFt");
  REQUIRE(agent);
  CHECK(agent->kind == Kind::torchrun_c10d);
  CHECK(agent->run_id == "job-1");
  CHECK_FALSE(agent->ddprun);
}

TEST_CASE("a static agent is recognised by its role key, and ddprun's by its extra field") {
  const auto torchrun = parse_incompatible_agent("/a/b/torchelastic/role_info/1", R"({"role": "default", "rank": 1})");
  REQUIRE(torchrun);
  CHECK(torchrun->kind == Kind::static_);
  CHECK(torchrun->run_id == "a/b");
  CHECK_FALSE(torchrun->ddprun);
  CHECK(parse_incompatible_agent("/a/torchelastic/role_info/0", R"({"role":"default","rank":0,"ddprun":1})")->ddprun);
}

TEST_CASE("the keys of workers and other programs are no agent's") {
  for (const auto* key : {"", "/", "init/", "/worker/attempt_0/x", "/none/torchelastic/assigned_ranks/0",
                          "torch.rendezvous.none", "/torchelastic/role_info/0"}) {
    INFO(key);
    CHECK_FALSE(parse_incompatible_agent(key, ""));
  }
}

TEST_CASE("a run id with control characters is escaped") {
  const auto agent = parse_incompatible_agent("/torch.rendezvous.\x1b[2J", "");
  CHECK_THAT(conflict_text(*agent), Catch::Contains("'\\x1b[2J'"));
  CHECK_THAT(refusal_text(*agent), Catch::Contains("'\\x1b[2J'"));
}
