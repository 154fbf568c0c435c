#include "worker/reducer/hooks/shard_sum_hook.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "common/error.h"
#include "worker/comm/collectives.h"
#include "worker/reducer/shards.h"

namespace ddprun {
namespace {

std::span<float> values_of(const Span& span) {
  return {static_cast<float*>(span.data), span.count};
}

std::size_t sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Makes a buffer large enough for so many values. It grows where a step has more subtrees than those before it.
float* with_room_for(RegisteredBuffer& buffer, std::size_t count, ProcessGroup& group) {
  if (buffer.bytes() < count * sizeof(float)) buffer = group.allocate(count * sizeof(float));
  return buffer.as<float>().data();
}

std::string bytes_of(const std::vector<Subtree>& subtrees) {
  return {reinterpret_cast<const char*>(subtrees.data()), subtrees.size() * sizeof(Subtree)};
}

std::vector<Subtree> subtrees_from(const std::string& bytes) {
  if (bytes.empty()) return {};
  std::vector<Subtree> subtrees(bytes.size() / sizeof(Subtree));
  std::memcpy(subtrees.data(), bytes.data(), subtrees.size() * sizeof(Subtree));
  return subtrees;
}

}  // namespace

ShardSumHook::ShardSumHook(int shards, ShardGradients& gradients, ProcessGroup& group)
    : shards_(shards), gradients_(gradients), group_(group) {}

void ShardSumHook::prepare(std::span<const GradBucket> buckets) {
  for (const auto& bucket : buckets) {
    if (bucket.span.dtype != DType::float32)
      throw make_error(Errc::unsupported, "the gradients of shards are float32, and those of {} are {}",
                       bucket.slices.front().name, name_of(bucket.span.dtype));
    plans_.push_back(
        {.bucket = bucket.span, .parts = shard_counts(bucket.span.count, group_.size()), .sent = {}, .received = {}});
  }
}

// Only the first step of a group can have been tried before, in another one.
std::vector<std::vector<Subtree>> ShardSumHook::held_by_ranks() {
  std::vector<std::vector<Subtree>> held(static_cast<std::size_t>(group_.size()));
  if (!std::exchange(is_first_step_, false)) return held;
  std::ranges::transform(all_gather_bytes(group_, bytes_of(gradients_.held())), held.begin(), subtrees_from);
  return held;
}

std::vector<int> ShardSumHook::begin_step(std::int64_t step, int filled) {
  gradients_.begin_step(step, plans_.size());
  const auto duties = divide_shards(shards_, filled, held_by_ranks());
  subtrees_.clear();
  for (const auto& duty : duties) subtrees_.push_back(subtrees_of(duty));
  const auto& own = duties[static_cast<std::size_t>(group_.rank())];
  gradients_.keep(own.held);
  adds_shard_ = !own.shards.empty();
  return own.shards;
}

void ShardSumHook::keep_pass() {
  for (std::size_t b = 0; b < plans_.size(); ++b) gradients_.add_bucket(b, values_of(plans_[b].bucket));
}

WorkPtr ShardSumHook::start(const GradBucket& bucket) {
  auto& plan = plans_[bucket.index];
  if (adds_shard_) gradients_.add_bucket(bucket.index, values_of(plan.bucket));
  return stages_.add(exchange(bucket.index), {[this, &plan] { return gather(plan); }});
}

// Sends each rank its part of this rank's sums.
WorkPtr ShardSumHook::exchange(std::size_t bucket) {
  auto& plan = plans_[bucket];
  const auto own = static_cast<std::size_t>(group_.rank());
  Counts sent_counts, received_counts;
  for (std::size_t r = 0; r < plan.parts.size(); ++r) {
    sent_counts.push_back(subtrees_[own].size() * plan.parts[r]);
    received_counts.push_back(subtrees_[r].size() * plan.parts[own]);
  }
  const auto sent_count = sum_of(sent_counts), received_count = sum_of(received_counts);
  float* const sent = with_room_for(plan.sent, sent_count, group_);
  float* const received = with_room_for(plan.received, received_count, group_);
  float* to = sent;
  std::size_t begin = 0;
  for (const auto part : plan.parts) {
    to = gradients_.write_sums(bucket, begin, part, to);
    begin += part;
  }
  return group_.all_to_allv(Span{sent, sent_count, DType::float32}, sent_counts,
                            Span{received, received_count, DType::float32}, received_counts);
}

// Gives this rank's part of the sum to all ranks.
WorkPtr ShardSumHook::gather(SumPlan& plan) {
  const auto part = plan.parts[static_cast<std::size_t>(group_.rank())];
  return group_.allgatherv(Span{sum_received(plan), part, DType::float32}, plan.bucket, plan.parts);
}

float* ShardSumHook::sum_received(const SumPlan& plan) const {
  const auto part = plan.parts[static_cast<std::size_t>(group_.rank())];
  std::vector<SubtreeSum> sums;
  float* at = plan.received.as<float>().data();
  for (const auto& of_rank : subtrees_) {
    for (const auto& subtree : of_rank) {
      sums.push_back({.subtree = subtree, .values = at});
      at += part;
    }
  }
  return add_along_tree(std::move(sums), part);
}

}  // namespace ddprun
