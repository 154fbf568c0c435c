#include "worker/comm/operations/transfer_numbers.h"

#include "worker/comm/process_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

constexpr int most = static_cast<int>(TransferNumbers::max_channels);

Operation send_to(int peer, int tag) {
  return {.kind = OpKind::send, .peer = peer, .tag = tag};
}
Operation recv_from(int peer, int tag) {
  return {.kind = OpKind::recv, .peer = peer, .tag = tag};
}

}  // namespace

TEST_CASE("messages are numbered by their direction, peer and tag") {
  TransferNumbers numbers;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    CHECK(numbers.next(send_to(1, 7)) == i);
    CHECK(numbers.next(send_to(2, 7)) == i);
    CHECK(numbers.next(send_to(1, 8)) == i);
    CHECK(numbers.next(recv_from(1, 7)) == i);
  }
}

TEST_CASE("a receive of a tag that was once received from any rank has no number, and its send has") {
  TransferNumbers numbers;
  CHECK(numbers.next(recv_from(1, 7)) == 1);
  CHECK(numbers.next(recv_from(any_source, 7)) == 0);
  CHECK(numbers.next(recv_from(1, 7)) == 0);
  CHECK(numbers.next(recv_from(1, 8)) == 1);
  CHECK(numbers.next(send_to(1, 7)) == 1);
}

TEST_CASE("with too many tags the new ones never get numbers, while the old ones continue") {
  TransferNumbers numbers;
  for (int tag = 0; tag < most; ++tag) REQUIRE(numbers.next(send_to(1, tag)) == 1);
  for (int again = 0; again < 2; ++again) {
    CHECK(numbers.next(send_to(1, most)) == 0);
    CHECK(numbers.next(send_to(2, 0)) == 0);
    CHECK(numbers.next(recv_from(1, 0)) == 0);
  }
  CHECK(numbers.next(send_to(1, 0)) == 2);
  CHECK(numbers.next(send_to(1, most - 1)) == 2);
}

// The two ends of a message: a rank that uses many tags with others, and a peer that uses tags only with this rank.
TEST_CASE("two ends that reach the limit at different messages never have different numbers for one") {
  TransferNumbers sender, receiver;
  const int others = 2, peer = 1, self = 0;
  for (int tag = 0; tag < most / 2 + 10; ++tag) sender.next(send_to(others, tag));
  std::size_t both = 0, one = 0;
  for (int round = 0; round < 3; ++round) {
    for (int tag = 0; tag < most + 10; ++tag) {
      const auto sent = sender.next(send_to(peer, tag)), received = receiver.next(recv_from(self, tag));
      if (sent != 0 && received != 0) REQUIRE(sent == received);
      both += sent != 0 && received != 0;
      one += (sent == 0) != (received == 0);
    }
  }
  CHECK(both > 0);
  CHECK(one > 0);
}

TEST_CASE("with too many tags received from any rank no receive has a number") {
  TransferNumbers numbers;
  CHECK(numbers.next(recv_from(1, most + 1)) == 1);
  for (int tag = 0; tag < most; ++tag) REQUIRE(numbers.next(recv_from(any_source, tag)) == 0);
  CHECK(numbers.next(recv_from(1, most + 1)) == 2);
  CHECK(numbers.next(recv_from(any_source, most)) == 0);
  CHECK(numbers.next(recv_from(1, most)) == 0);
  CHECK(numbers.next(recv_from(1, most + 1)) == 0);
  CHECK(numbers.next(send_to(1, most)) == 1);
}
