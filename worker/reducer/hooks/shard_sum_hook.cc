#include "ddprun/worker/reducer/hooks/shard_sum_hook.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ddprun/common/error.h"
#include "ddprun/worker/reducer/shards.h"

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

}  // namespace

ShardSumHook::ShardSumHook(int shards, ProcessGroup& group) : shards_(shards), group_(group) {}

void ShardSumHook::prepare(std::span<const GradBucket> buckets) {
  for (const auto& bucket : buckets) {
    if (bucket.span.dtype != DType::float32)
      throw make_error(Errc::unsupported, "the gradients of shards are float32, and those of {} are {}",
                       bucket.slices.front().name, name_of(bucket.span.dtype));
    plans_.push_back({.bucket = bucket.span,
                      .parts = shard_counts(bucket.span.count, group_.size()),
                      .own = {},
                      .sent = {},
                      .received = {}});
  }
}

void ShardSumHook::begin_step(int filled) {
  filled_ = filled;
  own_ = below(shards_of_rank(shards_, group_.rank(), group_.size()), filled);
  for (auto& plan : plans_) plan.own.clear();
}

void ShardSumHook::keep_pass() {
  for (auto& plan : plans_) add_shard(plan);
  ++own_.begin;
}

void ShardSumHook::add_shard(Plan& plan) const {
  if (own_.count() > 0) plan.own.add(own_.begin, values_of(plan.bucket));
}

WorkPtr ShardSumHook::start(const GradBucket& bucket) {
  auto& plan = plans_[bucket.index];
  add_shard(plan);
  if (group_.size() == 1) {
    const float* sum = add_along_tree(plan.own.sums(), plan.bucket.count);
    std::memcpy(plan.bucket.data, sum, plan.bucket.bytes());
    return stages_.add(nullptr, {});
  }
  return stages_.add(exchange(plan), {[this, &plan] { return gather(plan); }});
}

std::vector<Subtree> ShardSumHook::subtrees(int rank) const {
  return subtrees_of(below(shards_of_rank(shards_, rank, group_.size()), filled_));
}

// Sends each rank its part of this rank's sums.
WorkPtr ShardSumHook::exchange(Plan& plan) {
  const auto own = plan.own.sums();
  const auto own_part = plan.parts[static_cast<std::size_t>(group_.rank())];
  Counts sent_counts, received_counts;
  for (int r = 0; r < group_.size(); ++r) {
    sent_counts.push_back(own.size() * plan.parts[static_cast<std::size_t>(r)]);
    received_counts.push_back(subtrees(r).size() * own_part);
  }
  const auto sent_count = sum_of(sent_counts), received_count = sum_of(received_counts);
  float* const sent = with_room_for(plan.sent, sent_count, group_);
  float* const received = with_room_for(plan.received, received_count, group_);
  float* to = sent;
  std::size_t begin = 0;
  for (const auto part : plan.parts) {
    for (const auto& sum : own) to = std::copy_n(sum.values + begin, part, to);
    begin += part;
  }
  return group_.all_to_allv(Span{sent, sent_count, DType::float32}, sent_counts,
                            Span{received, received_count, DType::float32}, received_counts);
}

// Adds this rank's part of all sums, and gives it to all ranks.
WorkPtr ShardSumHook::gather(Plan& plan) {
  const auto part = plan.parts[static_cast<std::size_t>(group_.rank())];
  std::vector<SubtreeSum> sums;
  float* at = plan.received.as<float>().data();
  for (int r = 0; r < group_.size(); ++r) {
    for (const auto& subtree : subtrees(r)) {
      sums.push_back({.subtree = subtree, .values = at});
      at += part;
    }
  }
  float* const sum = add_along_tree(sums, part);
  return group_.allgatherv(Span{sum, part, DType::float32}, plan.bucket, plan.parts);
}

}  // namespace ddprun
