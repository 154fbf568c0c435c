#include "launcher/dashboard/collectives.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::dashboard;
using namespace std::chrono_literals;

namespace {

OperationTiming allreduce(double mean, double median, std::uint64_t count = 10) {
  return {.kind = "allreduce",
          .bytes = 1'000'000,
          .count = count,
          .seconds = mean * static_cast<double>(count),
          .median = median};
}

RankProgress rank(std::int64_t pid, std::vector<OperationTiming> timings) {
  return {.record = RankRecord{.size = 4, .pid = pid, .host = "a", .timings = std::move(timings)}};
}

int rank_of(const RankRecord& record) {
  return static_cast<int>(record.pid - 100);
}

}  // namespace

TEST_CASE("a collective's bandwidth is of the rank that does not wait, and that rank is named") {
  const GroupProgress group{"group/0",
                            {rank(100, {allreduce(0.012, 0.010)}), rank(101, {allreduce(0.011, 0.010)}),
                             rank(102, {allreduce(0.002, 0.001)}), rank(103, {allreduce(0.012, 0.011)})}};
  const auto views = collectives_of({group}, rank_of);
  REQUIRE(views.size() == 1);
  CHECK(views[0].group == "group/0");
  CHECK(views[0].operation == "allreduce");
  CHECK(views[0].bytes == 1'000'000);
  CHECK(views[0].count == 40);
  CHECK(views[0].seconds == Approx(0.37));
  CHECK(views[0].median == 0.010);
  CHECK(views[0].bus_bandwidth == Approx(1.5e6 / 0.001));  // 2 (n - 1) / n of the bytes
  CHECK(views[0].slowest == 2);
  CHECK(views[0].wait == Approx(0.010));
}

TEST_CASE("nobody is named where all ranks take as long, or one alone reports") {
  const GroupProgress even{"group/0", {rank(100, {allreduce(0.010, 0.010)}), rank(101, {allreduce(0.0095, 0.010)})}};
  CHECK(collectives_of({even}, rank_of).at(0).slowest == -1);
  const GroupProgress one{"group/0", {rank(100, {allreduce(0.010, 0.010)}), {}}};
  CHECK(collectives_of({one}, rank_of).at(0).slowest == -1);
  CHECK(collectives_of({{"group/0", {{}, {}}}}, rank_of).empty());
}

TEST_CASE("a group that its ranks have given up is left out, unless all are silent") {
  auto silent = rank(100, {});
  silent.report_age = 20s;
  const GroupProgress former{"generation/0", {silent, silent}}, now{"generation/1", {rank(100, {}), silent}};
  const auto living = living_groups({former, now});
  REQUIRE(living.size() == 1);
  CHECK(living[0].name == "generation/1");
  CHECK(living_groups({former}).size() == 1);
  CHECK(living_groups({}).empty());
}

TEST_CASE("each kind, size and group has a row, those that take longest first, and there are not too many") {
  std::vector<GroupProgress> groups;
  for (int i = 0; i < 20; ++i)
    groups.push_back({"group/" + std::to_string(i),
                      {rank(100, {allreduce(0.001 * (i + 1), 0.001),
                                  {.kind = "barrier", .bytes = 0, .count = 1, .seconds = 1e-6, .median = 1e-6}})}});
  const auto views = collectives_of(groups, rank_of);
  CHECK(views.size() == 12);
  CHECK(views[0].group == "group/19");
  CHECK(views[11].group == "group/8");
  const auto barrier = collectives_of({{"g",
                                        {rank(100, {{.kind = "barrier", .count = 2, .seconds = 2, .median = 1}}),
                                         rank(101, {{.kind = "barrier", .count = 2, .seconds = 2, .median = 1}})}}},
                                      rank_of);
  CHECK(std::isnan(barrier.at(0).bus_bandwidth));
}

TEST_CASE("a group in which ranks wait has a line about whom they wait for, another one has none") {
  const OperationDescription call{.kind = "allreduce", .reduce_op = "sum", .dtype = "float32", .count = 8};
  const auto in_it = [&](std::chrono::milliseconds age) {
    return RankProgress{.record = RankRecord{.sequence = 7,
                                             .inside = true,
                                             .size = 2,
                                             .pid = 100,
                                             .host = "a",
                                             .operation = call,
                                             .operations = {{.sequence = 7,
                                                             .state = RankOperation::State::started,
                                                             .age = age,
                                                             .bytes = 32,
                                                             .description = call}}}};
  };
  const auto outside =
      RankProgress{.record = RankRecord{.sequence = 7, .size = 2, .pid = 101, .host = "a", .operation = call}};
  CHECK(waits_of({{"group/0", {in_it(100ms), outside}}}).empty());
  const auto lines = waits_of({{"group/0", {in_it(9s), outside}}, {"group/1", {outside}}});
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Catch::StartsWith("group/0: ") && Catch::Contains("rank 1 (pid 101 on host a)"));

  const auto places = places_of({{"group/0", {in_it(9s), outside}}}, "a", 100);
  REQUIRE(places.size() == 1);
  CHECK(places[0].inside);
  CHECK(places[0].operation == "#7 allreduce(sum) of 8 float32");
  CHECK(places[0].since == 9s);
  CHECK(places_of({{"group/0", {in_it(9s), outside}}}, "b", 100).empty());
}
