#include "worker/comm/health/storeless_watch.h"

#include <memory>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

constexpr int size = 3;
constexpr auto grace = StorelessWatch::end_grace;
const std::string name = "rank 2 (pid 9 on host b)";

// Rank 1 in the fifth allreduce; rank 0 served the store, and left with that one as its next or as its last.
struct Scene {
  explicit Scene(bool rank_0_took_part) {
    log->begin({.kind = OpKind::allreduce, .dtype = DType::float32, .count = 10}, 4, 60s);
    entry = log->current();
    left.emplace(0, RankRecord{.sequence = rank_0_took_part ? 5u : 4u, .left = true, .size = size, .pid = 7});
    watch.emplace(1, size, *log, left, std::nullopt);
  }
  std::optional<GroupFailure> after(std::chrono::milliseconds time,
                                    const std::optional<TransportFailure>& failure = std::nullopt) const {
    return watch->look(entry->changed + time, failure);
  }

  std::unique_ptr<OperationLog> log = std::make_unique<OperationLog>();
  std::optional<OperationLog::Entry> entry;
  PeerRecords left;
  std::optional<StorelessWatch> watch;
};

bool contains(const std::optional<GroupFailure>& failure, const std::string& part) {
  REQUIRE(failure);
  INFO(failure->message);
  return failure->message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("without a store, an operation of which all others took part goes on until its deadline") {
  const Scene scene(true);
  CHECK_FALSE(scene.after(0s));
  CHECK_FALSE(scene.after(60s - 1ms));
  const auto failure = scene.after(60s);
  REQUIRE(failure);
  CHECK(failure->code == Errc::timeout);
  CHECK(contains(failure, "allreduce(sum) of 10 float32 #4 did not complete within 60.0 s"));
}

TEST_CASE("without a store, an operation that needs the rank which served it fails at once, and names it") {
  const Scene scene(false);
  const auto failure = scene.after(0s);
  REQUIRE(failure);
  CHECK(failure->code == Errc::peer_lost);
  CHECK(contains(failure, "rank 0 (pid 7"));
  CHECK(contains(failure, "left the group while allreduce(sum) of 10 float32 #4 was in progress"));
}

TEST_CASE("without a store, the end of a process is a loss only for an operation that does not complete") {
  Scene scene(true);
  scene.watch->ended(2, name, scene.entry->changed);
  scene.watch->ended(0, "rank 0", scene.entry->changed);  // it is known to have left
  CHECK_FALSE(scene.after(grace - 1ms));
  const auto failure = scene.after(grace);
  REQUIRE(failure);
  CHECK(*failure ==
        GroupFailure{Errc::peer_lost, name + " ended while allreduce(sum) of 10 float32 #4 was in progress", {2}});
  scene.log->end(4 % OperationLog::collectives_kept);
  CHECK_FALSE(scene.after(2 * grace));
}

TEST_CASE("without a store, a failed transport is explained by the end of a process, or by itself") {
  Scene scene(true);
  const TransportFailure failed{*scene.entry, "connection reset", scene.entry->changed + 1s};
  CHECK_FALSE(scene.after(1s, failed));
  const auto unexplained = scene.after(1s + OverdueProbe::cause_delay, failed);
  REQUIRE(unexplained);
  CHECK(unexplained->code == Errc::connection_lost);
  CHECK(contains(unexplained, "connection reset"));
  scene.watch->ended(2, name, scene.entry->changed + 1s);
  CHECK(contains(scene.after(1s, failed), name));
}
