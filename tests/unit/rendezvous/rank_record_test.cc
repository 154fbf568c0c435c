#include "rendezvous/progress/rank_record.h"

#include <random>
#include <string>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

OperationDescription allreduce_of(std::uint64_t count) {
  return {.kind = "allreduce", .reduce_op = "sum", .dtype = "float32", .count = count};
}

RankRecord example() {
  return {.beat = 12,
          .sequence = 41,
          .inside = true,
          .size = 4,
          .pid = 42,
          .time = 1'700'000'000'123ms,
          .host = "b",
          .operation = OperationDescription{},
          .timings = {{.kind = "allreduce", .bytes = 1 << 20, .count = 17, .seconds = 0.5, .median = 0.03125}},
          .operations = {{.sequence = 40,
                          .state = RankOperation::State::done,
                          .age = 3s,
                          .bytes = 1 << 20,
                          .description = allreduce_of(262144)},
                         {.sequence = 1,
                          .state = RankOperation::State::started,
                          .description = {.kind = "send",
                                          .dtype = "int64",
                                          .count = 3,
                                          .peer = 2,
                                          .tag = 7,
                                          .parts = 8,
                                          .spans = 9,
                                          .layout = 10}}}};
}

}  // namespace

TEST_CASE("a rank's record survives encoding") {
  CHECK(decode_rank_record(encode(example())) == example());
  CHECK(decode_rank_record(encode(RankRecord{})) == RankRecord{});
  CHECK(example().identity() == "pid 42 on host b");
  RankRecord labelled = example();
  labelled.label = "data 1, tensor 0";
  CHECK(labelled.identity() == "data 1, tensor 0, pid 42 on host b");
  CHECK(decode_rank_record(encode(labelled)) == labelled);
  CHECK_FALSE(example().operations[0].transfer());
  CHECK(example().operations[1].transfer());
}

TEST_CASE("text that is not a rank's record is not parsed") {
  const auto good = encode(example());
  const auto but = [&](const std::string& part, const std::string& other) {
    auto text = good;
    REQUIRE(text.find(part) != std::string::npos);
    return decode_rank_record(text.replace(text.find(part), part.size(), other));
  };
  CHECK(decode_rank_record("") == std::nullopt);
  CHECK(decode_rank_record("5\n1\n1") == std::nullopt);
  CHECK(but("5\n", "4\n") == std::nullopt);
  CHECK(but("\n12\n", "\nmany\n") == std::nullopt);
  CHECK(but("\n1700000000123\n", "\n-1\n") == std::nullopt);
  CHECK(but("40 2 3000", "40 4 3000") == std::nullopt);
  CHECK(but("\n1\nallreduce", "\n2\nallreduce") == std::nullopt);
  CHECK(but("\n1\nallreduce", "\n9\nallreduce") == std::nullopt);
  CHECK(but(" 17 0.5", " 0 0.5") == std::nullopt);
  CHECK(but(" 17 0.5", " 17 nan") == std::nullopt);
  CHECK(but(" 0.03125", " -1") == std::nullopt);
  CHECK(but("40 2 3000", "x 2 3000") == std::nullopt);
  CHECK(but("40 2 3000", "40 2 -3") == std::nullopt);
  CHECK(but("40 2 3000", "40 2 9223372036854775807") == std::nullopt);
  CHECK(but("allreduce sum", "all\x1b[31mreduce sum") == std::nullopt);
  CHECK(but("allreduce sum", "allreduce  sum") == std::nullopt);
  CHECK(but("allreduce sum", std::string(33, 'a') + " sum") == std::nullopt);
  CHECK(but("allreduce sum", "ALLREDUCE sum") == std::nullopt);
  CHECK(but("barrier - uint8", "barrier uint8") == std::nullopt);
  CHECK(but("\nbarrier - uint8 0 -1 0 0 0 0\n", "\n\n") == std::nullopt);  // in a collective, but in none
  CHECK(but(" 8 9 10\n", " 8 9 10 11\n") == std::nullopt);
  CHECK(but(" 8 9 10\n", " 8 9\n") == std::nullopt);
}

TEST_CASE("a record larger than any is refused") {
  auto record = example();
  record.operations.resize(64);
  CHECK(decode_rank_record(encode(record)) == record);
  record.operations.resize(65);
  CHECK(decode_rank_record(encode(record)) == std::nullopt);
  record.operations.clear();
  record.host = std::string(64 * 1024, 'h');
  CHECK(decode_rank_record(encode(record)) == std::nullopt);
}

TEST_CASE("a damaged record is refused, or is one that encodes again") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto good = encode(example());
  constexpr std::string_view bytes("\n -09az_\x00\xff", 10);
  for (int i = 0; i < 20'000; ++i) {
    auto text = good.substr(0, std::uniform_int_distribution<std::size_t>(good.size() / 2, good.size())(random));
    for (int damage = std::uniform_int_distribution<int>(0, 3)(random); damage > 0; --damage) {
      const auto at = std::uniform_int_distribution<std::size_t>(0, text.size() - 1)(random);
      text[at] = bytes[std::uniform_int_distribution<std::size_t>(0, bytes.size() - 1)(random)];
    }
    if (const auto record = decode_rank_record(text)) REQUIRE(decode_rank_record(encode(*record)) == record);
  }
}

TEST_CASE("an operation is described by its fields") {
  CHECK(describe(OperationDescription{}) == "barrier");
  CHECK(describe(allreduce_of(100)) == "allreduce(sum) of 100 float32");
  CHECK(describe({.kind = "broadcast", .dtype = "int64", .count = 4, .peer = 2}) == "broadcast of 4 int64 from rank 2");
  CHECK(describe({.kind = "reduce", .reduce_op = "max", .dtype = "int64", .count = 4, .peer = 2}) ==
        "reduce(max) of 4 int64 to rank 2");
  CHECK(describe({.kind = "send", .count = 8, .peer = 1, .tag = 7}) == "send of 8 uint8 to rank 1 with tag 7");
  CHECK(describe({.kind = "recv", .count = 8, .peer = 1, .tag = 7}) == "recv of 8 uint8 from rank 1 with tag 7");
  CHECK(describe({.kind = "recv", .count = 8, .tag = 7}) == "recv of 8 uint8 from any rank with tag 7");
  CHECK(describe({.kind = "allgather", .count = 8, .parts = 3}) == "allgatherv of 8 uint8 in all");
  CHECK(describe({.kind = "all_to_all", .count = 8, .parts = 3}) == "all_to_allv of 8 uint8");
  auto coalesced = allreduce_of(100);
  coalesced.spans = 4;
  CHECK(describe(coalesced) == "allreduce_coalesced(sum) of 100 float32 in 3 spans");
  auto piece = allreduce_of(100);
  piece.layout = 250;
  CHECK(describe(piece) == "allreduce(sum) of 100 float32, a piece of 250");
}

TEST_CASE("the key of a rank's record contains its group and rank") {
  const RankRecordKey key{worker_prefix(3) + "/group/0/", 17};
  CHECK(text_of(key) == "/worker/attempt_3/group/0/record/17");
  CHECK(parse_rank_record_key(text_of(key)) == key);
  CHECK(parse_rank_record_key("record/0") == RankRecordKey{"", 0});
  for (const char* other : {"", "record", "record/", "record/x", "record/-1", "group/records/1/", "group/failure"})
    CHECK(parse_rank_record_key(other) == std::nullopt);
}
