#include "worker/profiler/bottleneck.h"

#include <algorithm>

#include "worker/profiler/report.h"
#include "tests/support/catch.h"

using namespace ddprun::profiler;

namespace {

constexpr int steps = 10;

// Returns a rank's summary; the times are in milliseconds of a step.
RankSummary rank(double data, double forward, double backward, double optimizer, double wait) {
  const auto all = [](double ms) { return Seconds(ms * steps / 1000); };
  RankSummary summary{.host = "b"};
  summary.times = {.data = all(data),
                   .forward = all(forward),
                   .backward = all(backward),
                   .optimizer = all(optimizer),
                   .wait = all(wait)};
  return summary;
}

// Returns that summary for a rank on a device; the time is in milliseconds of a step.
RankSummary on_device(RankSummary rank, double paced) {
  rank.transfers = Seconds(0.010 * steps);
  rank.device = DeviceUse{.hidden = Seconds(0.004 * steps),
                          .copies = Seconds(0.001 * steps),
                          .queueing = Seconds(0.012 * steps),
                          .paced = Seconds(paced * steps / 1000)};
  return rank;
}

Summary of(std::vector<RankSummary> ranks) {
  return {.steps = steps, .batch_size = 8, .samples_per_s = 1000, .ranks = std::move(ranks)};
}

}  // namespace

TEST_CASE("a loader that all ranks wait for is the bottleneck, and data.workers its setting") {
  const auto found = bottleneck_of(of({rank(40, 10, 20, 3, 2), rank(38, 10, 20, 3, 4)}));
  CHECK(found.cause == Cause::data);
  CHECK(found.share == Approx(38.0 / 75));
  CHECK(found.sentence == "the loader: 51 % of each step waits for samples; raise data.workers (and data.prefetch)");
}

TEST_CASE("a rank that the others wait for is the bottleneck, with its host and part") {
  const auto loader = bottleneck_of(of({rank(0, 10, 20, 3, 40), rank(40, 10, 20, 3, 0)}));
  CHECK(loader.cause == Cause::slow_rank);
  CHECK_THAT(loader.sentence, Catch::Contains("rank 1 on host b is slower") && Catch::Contains("data takes 40.0 ms") &&
                                  Catch::Contains("the others wait for 55 % of each step"));
  const auto backward = bottleneck_of(of({rank(0, 10, 60, 3, 0), rank(0, 10, 20, 3, 40), rank(0, 10, 21, 3, 39)}));
  CHECK(backward.cause == Cause::slow_rank);
  CHECK_THAT(backward.sentence, Catch::Contains("rank 0") && Catch::Contains("backward takes"));
}

TEST_CASE("waiting that all ranks have in common is the network's") {
  const auto found = bottleneck_of(of({rank(1, 10, 20, 3, 30), rank(0, 10, 20, 3, 31)}));
  CHECK(found.cause == Cause::communication);
  CHECK_THAT(found.sentence, Catch::Contains("47 %") && Catch::Contains("dist.backend"));
}

TEST_CASE("an optimizer that takes most of a step is the bottleneck, an ordinary one is not") {
  const auto found = bottleneck_of(of({rank(1, 10, 20, 60, 1), rank(1, 10, 20, 60, 1)}));
  CHECK(found.cause == Cause::optimizer);
  CHECK_THAT(found.sentence, Catch::Contains("train.accumulate") && Catch::Contains("optim.name"));
  CHECK(bottleneck_of(of({rank(1, 20, 40, 15, 1), rank(1, 20, 40, 15, 1)})).cause == Cause::computation);
}

TEST_CASE("a larger batch is proposed by what it was measured to gain") {
  auto summary = of({rank(1, 10, 20, 3, 1)});
  summary.larger_batch = BatchTrial{.setting = "train.batch_size = 16", .batch_size = 16, .samples_per_s = 1500};
  const auto found = bottleneck_of(summary);
  CHECK(found.cause == Cause::batch_size);
  CHECK(found.sentence == "the batch is small: train.batch_size = 16 trains 50 % more samples/s");
  summary.larger_batch->samples_per_s = 1080;
  CHECK(bottleneck_of(summary).cause == Cause::computation);
  summary.larger_batch->samples_per_s = 3000;
  auto optimizer = summary;
  optimizer.ranks = {rank(1, 10, 20, 60, 1)};
  CHECK(bottleneck_of(optimizer).cause == Cause::optimizer);
  summary.larger_batch->samples_per_s = 900;
  CHECK(bottleneck_of(summary).cause == Cause::computation);
}

TEST_CASE("without another cause the model computes, and the first row says what") {
  auto summary = of({rank(1, 10, 20, 3, 1)});
  summary.rows = {SummaryRow{.operation = "linear", .module = "fc1", .backward = true, .time = Seconds(0.175)}};
  const auto found = bottleneck_of(summary);
  CHECK(found.cause == Cause::computation);
  CHECK_THAT(found.sentence,
             Catch::Contains("the longest operation is linear backward in fc1 (50 % of rank 0's step)"));
}

TEST_CASE("steps in which devices wait for the host are named launch-bound, others are not") {
  const auto both = of({on_device(rank(1, 10, 20, 3, 1), 20), on_device(rank(1, 10, 20, 3, 1), 17)});
  const auto found = bottleneck_of(both);
  CHECK(found.cause == Cause::launches);
  CHECK(found.share == Approx(17.0 / 35));
  CHECK_THAT(found.sentence, Catch::Contains("in 49 % of each step the device waits for the host") &&
                                 Catch::Contains("train.batch_size"));
  const auto one = bottleneck_of(of({on_device(rank(1, 10, 20, 3, 1), 20), on_device(rank(1, 10, 20, 3, 1), 16)}));
  CHECK(one.cause == Cause::computation);
  CHECK_THAT(one.sentence, Catch::Contains("where the device has them"));
}

TEST_CASE("a larger cause than launches is named before them") {
  CHECK(bottleneck_of(of({on_device(rank(40, 10, 20, 3, 1), 20)})).cause == Cause::data);
  CHECK(bottleneck_of(of({on_device(rank(1, 10, 20, 3, 30), 20)})).cause == Cause::communication);
}

TEST_CASE("a report of devices has the host's time beside theirs, the overlap, and what binds each") {
  auto summary = of({on_device(rank(1, 10, 20, 3, 1), 20), on_device(rank(1, 10, 20, 3, 1), 16)});
  summary.rows = {SummaryRow{.operation = "linear", .module = "fc1", .time = Seconds(0.175), .host = Seconds(0.03)}};
  const auto lines = report_of(summary);
  CHECK_THAT(lines[1], Catch::EndsWith("host ms"));
  CHECK_THAT(lines[2], Catch::EndsWith(" 3.00"));
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [](const std::string& line) { return line.starts_with("ms a step of device"); });
  REQUIRE(lines.end() - found > 3);
  CHECK_THAT(found[1], Catch::Matches("0 \\(b\\) +33\\.00 +10\\.00 +40 +1\\.00 +12\\.00 +61 +launches: .*"));
  CHECK_THAT(found[2], Catch::Matches("1 \\(b\\) +33\\.00 .* 48 +the device"));
}

TEST_CASE("a report has the longest operations, sums up the rest, and ends with the bottleneck") {
  auto summary = of({rank(1, 10, 20, 3, 1), rank(1, 10, 20, 3, 1)});
  for (int i = 0; i < 40; ++i)
    summary.rows.push_back(
        {.operation = "op" + std::to_string(i), .module = "m", .calls = steps, .time = Seconds(0.001 * (40 - i))});
  summary.no_larger_batch = "there is no memory for it";
  const auto lines = report_of(summary);
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  CHECK(lines.size() < 40);
  CHECK_THAT(lines.front(), Catch::Contains("profile of 10 steps with 8 samples a rank: 1000 samples/s"));
  CHECK_THAT(lines[2], Catch::StartsWith("op0 "));
  CHECK_THAT(text, Catch::Contains("25 others") && !Catch::Contains("op15 "));
  CHECK_THAT(text, Catch::Contains("1 (b)") && Catch::Contains("not measured: there is no memory for it"));
  CHECK_THAT(lines.back(), Catch::StartsWith("bottleneck: the model's computation"));
}

TEST_CASE("products are compared with the fastest one, also where the machine was slower when it was measured") {
  auto summary = of({rank(0, 10, 20, 3, 0)});
  summary.rows = {{.operation = "addmm", .module = "a", .calls = 10, .time = Seconds(1), .flops = 1e11},
                  {.operation = "addmm", .module = "b", .calls = 10, .time = Seconds(1), .flops = 3e11}};
  const auto has = [&](const std::string& line) { return std::ranges::count(report_of(summary), line) == 1; };
  summary.peak_flops = 1.5e11;
  CHECK(has("products and convolutions: 200.0 GFLOP/s, 67 % of the 300.0 GFLOP/s of the fastest product"));
  summary.peak_flops = 8e11;
  CHECK(has("products and convolutions: 200.0 GFLOP/s, 25 % of the 800.0 GFLOP/s of the fastest product"));
}
