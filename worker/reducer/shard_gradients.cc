#include "worker/reducer/shard_gradients.h"

#include <algorithm>
#include <utility>

namespace ddprun {

void ShardGradients::begin_step(std::int64_t step, std::size_t buckets) {
  settle_shard();
  if (step_ != step || bucket_count_ != buckets) keep({});
  if (bucket_count_ != buckets) free_.clear();
  step_ = step;
  bucket_count_ = buckets;
}

std::vector<Subtree> ShardGradients::held() const {
  std::vector<Subtree> all;
  for (const auto& sum : sums_) all.push_back(sum.subtree);
  return all;
}

void ShardGradients::keep(std::span<const Subtree> held) {
  std::erase_if(sums_, [&](Sum& sum) {
    if (std::ranges::find(held, sum.subtree) != held.end()) return false;
    forget(sum);
    return true;
  });
}

void ShardGradients::forget(Sum& sum) {
  for (int i = 0; i < sum.subtree.size; ++i) losses_.erase(sum.subtree.begin + i);
  free_.push_back(std::move(sum.buckets));
}

ShardGradients::Buckets ShardGradients::take_memory() {
  if (free_.empty()) return Buckets(bucket_count_);
  auto memory = std::move(free_.back());
  free_.pop_back();
  return memory;
}

void ShardGradients::begin_shard(int shard) {
  settle_shard();
  shard_ = Shard{.number = shard, .buckets = take_memory()};
}

void ShardGradients::add_bucket(std::size_t bucket, std::span<const float> gradient) {
  shard_->buckets[bucket].assign(gradient.begin(), gradient.end());
  ++shard_->added;
}

void ShardGradients::add_loss(double loss) {
  losses_[shard_->number] = loss;
  shard_->has_loss = true;
}

// Makes the last shard one of the sums, or forgets it if it is incomplete.
void ShardGradients::settle_shard() {
  if (!shard_) return;
  auto shard = std::move(*shard_);
  shard_.reset();
  sums_.push_back({.subtree = {.begin = shard.number, .size = 1}, .buckets = std::move(shard.buckets)});
  if (shard.added < bucket_count_ || !shard.has_loss) {
    forget(sums_.back());
    sums_.pop_back();
    return;
  }
  while (sums_.size() > 1 && are_siblings(sums_.end()[-2].subtree, sums_.back().subtree)) {
    auto last = std::move(sums_.back());
    sums_.pop_back();
    auto& left = sums_.back();
    for (std::size_t b = 0; b < bucket_count_; ++b)
      add_to(left.buckets[b].data(), last.buckets[b].data(), last.buckets[b].size());
    left.subtree.size *= 2;
    free_.push_back(std::move(last.buckets));
  }
}

std::size_t ShardGradients::bytes() const {
  std::size_t sum = 0;
  const auto add = [&](const Buckets& buckets) {
    for (const auto& bucket : buckets) sum += bucket.capacity() * sizeof(float);
  };
  for (const auto& each : sums_) add(each.buckets);
  if (shard_) add(shard_->buckets);
  std::ranges::for_each(free_, add);
  return sum;
}

double ShardGradients::loss_sum() const {
  double sum = 0;
  for (const auto& [shard, loss] : losses_) sum += loss;
  return sum;
}

// Returns how many of the sums, the last ones, are left siblings of what the last shard makes with those after them.
std::size_t ShardGradients::merged_with_shard() const {
  Subtree right{.begin = shard_->number, .size = 1};
  std::size_t merged = 0;
  while (merged < sums_.size() && are_siblings(sums_[sums_.size() - 1 - merged].subtree, right)) {
    right = {.begin = sums_[sums_.size() - 1 - merged].subtree.begin, .size = 2 * right.size};
    ++merged;
  }
  return merged;
}

float* ShardGradients::write_sums(std::size_t bucket, std::size_t begin, std::size_t count, float* to) const {
  const std::size_t merged = shard_ ? merged_with_shard() : 0, apart = sums_.size() - merged;
  for (std::size_t i = 0; i < apart; ++i) to = std::copy_n(sums_[i].buckets[bucket].data() + begin, count, to);
  if (!shard_) return to;
  float* const end = std::copy_n(shard_->buckets[bucket].data() + begin, count, to);
  for (std::size_t i = sums_.size(); i-- > apart;) add_to(to, sums_[i].buckets[bucket].data() + begin, count);
  return end;
}

}  // namespace ddprun
