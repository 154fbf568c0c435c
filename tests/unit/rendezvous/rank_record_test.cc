#include "ddprun/rendezvous/progress/rank_record.h"

#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

RankRecord example() {
  return {
      .beat = 12,
      .sequence = 41,
      .inside = true,
      .signature = 7,
      .size = 4,
      .pid = 42,
      .time = 1'700'000'000'123ms,
      .host = "b",
      .operation = "barrier",
      .operations = {{.sequence = 40,
                      .state = RankOperation::State::done,
                      .age = 3s,
                      .bytes = 1 << 20,
                      .text = "allreduce(sum) of 262144 float32"},
                     {.sequence = 41, .transfer = true, .state = RankOperation::State::started, .text = "barrier"}}};
}

}  // namespace

TEST_CASE("a rank's record survives encoding") {
  CHECK(decode_rank_record(encode(example())) == example());
  CHECK(decode_rank_record(encode(RankRecord{})) == RankRecord{});
  CHECK(example().identity() == "pid 42 on host b");
}

TEST_CASE("text that is not a rank's record is not parsed") {
  const auto good = encode(example());
  const auto but = [&](const std::string& part, const std::string& other) {
    auto text = good;
    return decode_rank_record(text.replace(text.find(part), part.size(), other));
  };
  CHECK(decode_rank_record("") == std::nullopt);
  CHECK(decode_rank_record("2\n1\n1") == std::nullopt);
  CHECK(but("2\n", "1\n") == std::nullopt);
  CHECK(but("\n12\n", "\nmany\n") == std::nullopt);
  CHECK(but("40 0 2", "40 0 4") == std::nullopt);
  CHECK(but("40 0 2", "x 0 2") == std::nullopt);
}

TEST_CASE("the key of a rank's record contains its group and rank") {
  const RankRecordKey key{worker_prefix(3) + "/group/0/", 17};
  CHECK(text_of(key) == "/worker/attempt_3/group/0/record/17");
  CHECK(parse_rank_record_key(text_of(key)) == key);
  CHECK(parse_rank_record_key("record/0") == RankRecordKey{"", 0});
  for (const char* other : {"", "record", "record/", "record/x", "record/-1", "group/records/1/", "group/failure"})
    CHECK(parse_rank_record_key(other) == std::nullopt);
}
