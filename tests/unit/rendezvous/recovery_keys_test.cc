#include "rendezvous/recovery/recovery_keys.h"

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("the keys of recovery are those of one round of workers") {
  const RecoveryKeys keys{3};
  CHECK(keys.able("2.0") == "/worker/attempt_3/recovery/report/able/2.0");
  CHECK(keys.lost("2.0") == "/worker/attempt_3/recovery/report/lost/2.0");
  CHECK(keys.members(7) == "/worker/attempt_3/recovery/members/7");
  CHECK(keys.newest() == "/worker/attempt_3/recovery/newest");
  CHECK(keys.groups() == "/worker/attempt_3/recovery/groups/");
}

TEST_CASE("a list of members is read as it was written") {
  const std::vector<std::string> members{member_name(0, 0), member_name(1, 12)};
  CHECK(member_list(members) == "0.0 1.12");
  CHECK(parse_member_list(member_list(members)) == members);
  CHECK(parse_member_list("").empty());
}
