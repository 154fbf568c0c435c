#include "worker/profiler/bottleneck.h"

#include <algorithm>

#include <fmt/format.h>

#include "worker/profiler/slow_rank.h"

namespace ddprun::profiler {
namespace {

// A cause counts only from these shares of a step on: otherwise the model's computation is the next candidate.
constexpr double least_share = 0.08;
constexpr double least_optimizer_share = 0.3;

Seconds least_of(const Summary& summary, Seconds StepTimes::*part) {
  Seconds least = summary.ranks.front().times.*part;
  for (const auto& rank : summary.ranks) least = std::min(least, rank.times.*part);
  return least;
}

Seconds step_time(const Summary& summary) {
  Seconds longest{1e-12};
  for (const auto& rank : summary.ranks) longest = std::max(longest, rank.times.total());
  return longest;
}

int percent(double share) {
  return static_cast<int>(100 * share + 0.5);
}

Bottleneck slow_rank(const Summary& summary) {
  std::vector<StepTimes> times;
  for (const auto& rank : summary.ranks) times.push_back(rank.times);
  const auto slow = find_slow_rank(times, summary.steps);
  if (!slow) return {.cause = Cause::slow_rank, .share = 0, .sentence = ""};
  const double share = (slow->own - slow->others) * summary.steps / step_time(summary);
  return {.cause = Cause::slow_rank,
          .share = share,
          .sentence = fmt::format("{}: the others wait for {} % of each step; look at that host, or leave it out",
                                  slow_rank_line(*slow, summary.ranks[static_cast<std::size_t>(slow->rank)].host),
                                  percent(share))};
}

Bottleneck data(const Summary& summary) {
  const double share = least_of(summary, &StepTimes::data) / step_time(summary);
  return {
      .cause = Cause::data,
      .share = share,
      .sentence = fmt::format("the loader: {} % of each step waits for samples; raise data.workers (and data.prefetch)",
                              percent(share))};
}

Bottleneck communication(const Summary& summary) {
  const double share = least_of(summary, &StepTimes::wait) / step_time(summary);
  return {.cause = Cause::communication,
          .share = share,
          .sentence = fmt::format("communication: {} % of each step waits for transfers while nothing is computed; "
                                  "raise train.accumulate or train.batch_size, or try dist.bucket_mb and dist.backend",
                                  percent(share))};
}

Bottleneck optimizer(const Summary& summary) {
  const double share = least_of(summary, &StepTimes::optimizer) / step_time(summary);
  return {.cause = Cause::optimizer,
          .share = share,
          .sentence = fmt::format("the optimizer: {} % of each step; raise train.accumulate or train.batch_size, so "
                                  "that it updates less often, or choose a simpler optim.name",
                                  percent(share))};
}

// Returns nothing unless all ranks are bound by them.
Bottleneck launches(const Summary& summary) {
  if (!std::ranges::all_of(summary.ranks, is_launch_bound))
    return {.cause = Cause::launches, .share = 0, .sentence = ""};
  Seconds least = summary.ranks.front().device->paced;
  for (const auto& rank : summary.ranks) least = std::min(least, rank.device->paced);
  const double share = least / step_time(summary);
  return {.cause = Cause::launches,
          .share = share,
          .sentence = fmt::format("launches: in {} % of each step the device waits for the host, which queues its "
                                  "operations; raise train.batch_size, as each takes longer then",
                                  percent(share))};
}

Bottleneck batch_size(const Summary& summary) {
  const double gain = gain_of_larger_batch(summary);
  if (gain <= 0) return {.cause = Cause::batch_size, .share = 0, .sentence = ""};
  return {.cause = Cause::batch_size,
          .share = gain / (1 + gain),
          .sentence = fmt::format("the batch is small: {} trains {} % more samples/s", summary.larger_batch->setting,
                                  percent(gain))};
}

std::string first_row(const Summary& summary) {
  if (summary.rows.empty()) return "";
  const SummaryRow& row = summary.rows.front();
  return fmt::format(", the longest operation is {}{}{} ({} % of rank 0's step)", row.operation,
                     row.backward ? " backward" : "", row.module.empty() ? "" : " in " + row.module,
                     percent(row.time / summary.ranks.front().times.total()));
}

Bottleneck computation(const Summary& summary) {
  const auto least = least_of(summary, &StepTimes::forward) + least_of(summary, &StepTimes::backward);
  const double share = least / step_time(summary);
  return {.cause = Cause::computation,
          .share = share,
          .sentence =
              fmt::format("the model's computation: {} % of each step{}; more ranks share it, and "
                          "train.precision = bf16 shortens products where the {} has them",
                          percent(share), first_row(summary), summary.ranks.front().device ? "device" : "processor")};
}

}  // namespace

Bottleneck bottleneck_of(const Summary& summary) {
  Bottleneck found;
  for (auto& candidate :
       {slow_rank(summary), data(summary), communication(summary), optimizer(summary), launches(summary)}) {
    const double least = candidate.cause == Cause::optimizer ? least_optimizer_share : least_share;
    if (candidate.share >= least && candidate.share > found.share) found = candidate;
  }
  if (found.share > 0) return found;
  // A larger batch also saves part of the causes above, so it is no cause beside them.
  found = batch_size(summary);
  return found.share >= least_share ? found : computation(summary);
}

}  // namespace ddprun::profiler
