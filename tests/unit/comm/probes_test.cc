#include <memory>

#include "rendezvous/store/memory_store.h"
#include "worker/comm/health/disagreement_probe.h"
#include "worker/comm/health/overdue_probe.h"
#include "worker/comm/health/publisher.h"
#include "worker/comm/health/transfer_probe.h"
#include "worker/comm/process_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

constexpr int size = 3;
constexpr auto window = 3s;

Operation message(OpKind kind, int peer, std::size_t count) {
  return {.kind = kind, .dtype = DType::float32, .count = count, .peer = peer, .tag = 1};
}

// Rank 0 of a group, with its operation log and the records of all ranks.
struct Group {
  MemoryStore store;
  RankRecords records{store.another_client(), "group/", size, 10s};
  std::unique_ptr<OperationLog> log = std::make_unique<OperationLog>();

  Group() {
    for (int rank = 0; rank < size; ++rank) publish(rank, {.beat = 1});
  }
  void publish(int rank, RankRecord record) {
    record.size = size;
    record.pid = rank;
    records.publish(rank, record);
  }
};

}  // namespace

TEST_CASE("all ranks are observed twice around a deadline, and not before it comes near") {
  Group group;
  OverdueProbe probe(group.records, *group.log, 0, window);
  const auto slot = group.log->begin({.kind = OpKind::allreduce, .dtype = DType::float32, .count = 10}, 0, 10s);
  const auto entry = group.log->read(slot);
  REQUIRE(entry);
  CHECK_FALSE(probe.look(entry->deadline() - window - 1ms, std::nullopt));
  CHECK_FALSE(probe.observing());
  CHECK_FALSE(probe.look(entry->deadline() - window, std::nullopt));
  CHECK(probe.observing());
  group.publish(1, {.beat = 2});
  const auto overdue = probe.look(entry->deadline(), std::nullopt);
  REQUIRE(overdue);
  CHECK(describe(overdue->own.operation) == "allreduce(sum) of 10 float32");
  CHECK(overdue->own.seconds == 10);
  CHECK_FALSE(overdue->store_error);
  REQUIRE(overdue->observations.size() == size);
  CHECK(overdue->observations[1].before->beat == 1);
  CHECK(overdue->observations[1].now->beat == 2);
  CHECK(overdue->observations[2].now->beat == 1);

  group.log->end(slot);
  CHECK_FALSE(probe.look(entry->deadline(), std::nullopt));
  CHECK_FALSE(probe.observing());
}

TEST_CASE("a failed transport is overdue at once, and its cause may still follow for a moment") {
  Group group;
  OverdueProbe probe(group.records, *group.log, 0, window);
  const auto slot = group.log->begin({.kind = OpKind::barrier}, 0, 10min);
  const auto entry = group.log->read(slot);
  REQUIRE(entry);
  const TransportFailure failure{*entry, "connection reset", entry->changed + 1s};
  const auto first = probe.look(failure.at, failure);
  REQUIRE(first);
  CHECK(first->own.transport_error == "connection reset");
  CHECK(first->cause_may_follow);
  const auto later = probe.look(failure.at + OverdueProbe::cause_delay, failure);
  REQUIRE(later);
  CHECK_FALSE(later->cause_may_follow);
}

TEST_CASE("once the calls of two ranks differ, those of all ranks are collected for a while") {
  Group group;
  DisagreementProbe probe(group.records, *group.log, 0, 1s);
  group.log->begin({.kind = OpKind::barrier}, 7, 10min);
  const auto calling = [](std::uint64_t sequence, const std::string& kind) {
    return RankRecord{
        .sequence = sequence, .inside = true, .operation = OperationDescription{.kind = kind, .count = 1}};
  };
  auto same = calling(7, "barrier");
  same.operation->count = 0;
  const auto now = OperationLog::Clock::now();
  CHECK_FALSE(probe.look(now, std::nullopt, "pid 5"));
  CHECK_FALSE(probe.look(now, calling(8, "broadcast"), "pid 5"));
  CHECK_FALSE(probe.look(now, same, "pid 5"));

  group.publish(1, calling(7, "broadcast"));
  const auto early = probe.look(now, calling(7, "broadcast"), "pid 5");
  REQUIRE(early);
  CHECK(early->calls.size() == 2);
  CHECK(early->calls.at(0).name == "rank 0 (pid 5)");
  CHECK(early->more_may_follow);
  group.publish(1, calling(9, "broadcast"));  // it goes on
  group.publish(2, same);
  const auto late = probe.look(now + 1s, calling(9, "broadcast"), "pid 5");
  REQUIRE(late);
  CHECK(late->calls.size() == 3);
  CHECK_FALSE(late->more_may_follow);
  const auto failure = diagnose({.rank = 0, .size = size, .collective = late});
  REQUIRE(failure);
  CHECK(failure->message.starts_with("the ranks disagree on operation #7: rank 1 (pid 1 on host ) calls broadcast"));
}

TEST_CASE("messages are compared with their partners' records once these can show them") {
  Group group;
  TransferProbe probe(group.records, *group.log, 0, 1s);
  const auto slot = group.log->begin_transfer(message(OpKind::recv, 2, 4), 3, 10min);
  const auto begun = group.log->read(slot)->changed;
  RankRecord sender{.beat = 2};
  sender.operations = {{.sequence = 3,
                        .state = RankOperation::State::started,
                        .description = description_of(message(OpKind::send, 0, 5))}};
  group.publish(2, sender);

  Facts early{.rank = 0, .size = size};
  probe.look(begun + 999ms, {}, early);
  CHECK(early.comparisons.empty());
  Facts facts{.rank = 0, .size = size};
  probe.look(begun + 1s, {}, facts);
  REQUIRE(facts.comparisons.size() == 1);
  CHECK(facts.departures.empty());
  const auto failure = diagnose(facts);
  REQUIRE(failure);
  CHECK(failure->code == Errc::mismatch);
}

TEST_CASE("the time since a partner left counts from when the probe first found it") {
  Group group;
  TransferProbe probe(group.records, *group.log, 0, 1s);
  const auto slot = group.log->begin_transfer(message(OpKind::recv, 2, 4), 3, 10min);
  group.log->begin_transfer(message(OpKind::recv, any_source, 4), 1, 10min);
  const auto now = group.log->read(slot)->changed + 1min;
  group.publish(2, {.beat = 2, .left = true});
  const auto known_for = [&](std::chrono::seconds after, const PeerRecords& departed) {
    Facts facts{.rank = 0, .size = size};
    probe.look(now + after, departed, facts);
    std::vector<std::chrono::milliseconds> times;
    for (const auto& each : facts.departures) times.push_back(each.known_for);
    return times;
  };
  using Times = std::vector<std::chrono::milliseconds>;
  const RankRecord left{.left = true};
  CHECK(known_for(0s, {{2, left}}) == Times{0ms});
  CHECK(known_for(2s, {{1, left}, {2, left}}) == Times{2s, 0ms});  // now no rank is left that could send to any
  CHECK(known_for(3s, {{1, left}, {2, left}}) == Times{3s, 1s});
}

namespace {

GroupOptions options_of(int rank) {
  return {.rank = rank, .size = size, .prefix = "group/"};
}

struct Rank {
  Rank(MemoryStore& store, GroupOptions the_options)
      : options(std::move(the_options)),
        client(store.another_client()),
        records(client, options.prefix, options.size, 10s),
        publisher(client, records, options, *log) {}

  std::unique_ptr<OperationLog> log = std::make_unique<OperationLog>();
  GroupOptions options;
  std::shared_ptr<Store> client;
  RankRecords records;
  Publisher publisher;
};

Deadline at_once() {
  return Deadline::in(0ms);
}

}  // namespace

TEST_CASE("a rank that goes without leaving becomes the group's failure, by its last will") {
  MemoryStore store;
  Rank first(store, options_of(0));
  first.publisher.join("gloo", "");
  {
    Rank leaving(store, options_of(1));
    leaving.publisher.join("gloo", "");
    leaving.publisher.leave(Deadline::in(10s));
  }
  CHECK_FALSE(first.publisher.await_failure(at_once()));
  CHECK(first.records.read(1)->left);
  {
    Rank lost(store, options_of(2));
    lost.publisher.join("gloo", "");
  }
  const auto failure = first.publisher.await_failure(at_once());
  REQUIRE(failure);
  CHECK(failure->lost == std::vector{2});
}

TEST_CASE("the first failure that a rank publishes counts for all") {
  MemoryStore store;
  Rank one(store, options_of(0)), other(store, options_of(1));
  const GroupFailure failure{Errc::timeout, "too late"};
  CHECK(one.publisher.publish(failure) == failure);
  CHECK(other.publisher.publish({Errc::peer_lost, "lost", {0}}) == failure);
  CHECK(other.publisher.await_failure(at_once()) == failure);
}

TEST_CASE("a rank with another configuration fails the group as it joins") {
  MemoryStore store;
  Rank one(store, options_of(0)), other(store, options_of(1));
  one.publisher.join("gloo", "");
  CHECK_THROWS_WITH(other.publisher.join("shm", ""),
                    Catch::Contains("asks for back end gloo") && Catch::Contains("for back end shm"));
  REQUIRE(one.publisher.await_failure(at_once()));
  CHECK(one.publisher.await_failure(at_once())->code == Errc::mismatch);
}

TEST_CASE("a second process of one rank is found in the record that it overwrote") {
  MemoryStore store;
  Rank one(store, options_of(1)), twin(store, options_of(1));
  one.publisher.join("gloo", "");
  CHECK_FALSE(one.publisher.find_duplicate());
  twin.log->begin({.kind = OpKind::barrier}, 0, 1s);
  twin.publisher.join("gloo", "");
  CHECK(one.publisher.find_duplicate());
  CHECK_FALSE(twin.publisher.find_duplicate());
}

TEST_CASE("a rank's own record with the times of operations is not that of a second process") {
  MemoryStore store;
  Rank rank(store, options_of(0));
  for (int i = 0; i < 20; ++i) rank.log->end(rank.log->begin({.kind = OpKind::barrier}, 0, 1s));
  REQUIRE_FALSE(rank.log->timings().empty());
  rank.publisher.join("gloo", "");
  CHECK_FALSE(rank.publisher.find_duplicate());
}

TEST_CASE("a record shows the collective that its rank is in, or its last one") {
  MemoryStore store;
  Rank rank(store, options_of(0));
  rank.publisher.beat();
  CHECK_FALSE(rank.records.read(0)->operation);
  const auto slot = rank.log->begin({.kind = OpKind::allreduce, .dtype = DType::float32, .count = 10}, 0, 1s);
  rank.publisher.beat();
  const auto inside = rank.records.read(0);
  CHECK(inside->inside);
  CHECK(inside->sequence == 0);
  CHECK(inside->beat == 2);
  REQUIRE(inside->operation);
  CHECK(describe(*inside->operation) == "allreduce(sum) of 10 float32");
  rank.log->end(slot);
  rank.publisher.beat();
  const auto outside = rank.records.read(0);
  CHECK_FALSE(outside->inside);
  CHECK(outside->sequence == 1);
  CHECK(outside->newest() == 0);
}
