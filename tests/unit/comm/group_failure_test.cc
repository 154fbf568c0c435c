#include "worker/comm/health/group_failure.h"

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

TEST_CASE("a group's failure survives encoding, and free text is the message of a lost peer") {
  const GroupFailure failure{Errc::mismatch, "first line\nsecond line"};
  CHECK(decode_group_failure(encode(failure)) == failure);
  const auto loss = failure_by_loss(2, "pid 42 on host b");
  CHECK(loss.lost == std::vector{2});
  CHECK(decode_group_failure(encode(loss)) == loss);
  const GroupFailure several{Errc::peer_lost, "7 8", {0, 11}};
  CHECK(decode_group_failure(encode(several)) == several);
  for (const auto* text : {"", " ", "1 ", "1 x", " 1", "99"}) CHECK(decode_group_failure(text).message == text);
  CHECK(decode_group_failure("rank 3 was lost") == GroupFailure{Errc::peer_lost, "rank 3 was lost"});
}
