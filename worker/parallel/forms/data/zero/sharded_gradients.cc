#include "worker/parallel/forms/data/zero/sharded_gradients.h"

#include <algorithm>

#include "common/error.h"
#include "common/first_names.h"
#include "worker/parallel/group_tensors.h"
#include "worker/reducer/shards.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

constexpr std::size_t most_travelling = 2;

Tensor flat_tensor(std::size_t count, DType dtype) {
  return Tensor::empty({static_cast<std::int64_t>(count)}, dtype);
}

Tensor range(const Tensor& tensor, std::size_t begin, std::size_t end) {
  return tensor.slice(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin));
}

std::size_t bytes_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.bytes() : 0;
}

// Returns the reduction that leaves an average over the replicas to do.
Reduction reduction_among_shards(const BucketRanks& ranks) {
  const int averaged = ranks.shard->size() * ranks.replicate->size();
  if (ranks.divisor == averaged) return ReduceOp::average;
  return Reduction::premultiplied_sum(static_cast<double>(ranks.replicate->size()) / ranks.divisor);
}

}  // namespace

ShardedGradients::ShardedGradients(std::vector<BucketRanks> ranks,
                                   std::vector<std::pair<std::string, Variable>> parameters,
                                   std::vector<Bucket> buckets, const Options& options)
    : ranks_(std::move(ranks)),
      parameters_(std::move(parameters)),
      buckets_(std::move(buckets)),
      options_(options),
      places_(parameters_.size()),
      used_(parameters_.size()),
      memory_(buckets_.size()),
      adds_(buckets_.size(), false) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    ProcessGroup& shards = *ranks_.at(b).shard;
    for (std::size_t s = 0; s < bucket.slices.size(); ++s)
      places_[bucket.slices[s].parameter] = {.bucket = b, .slice = s};
    missing_.push_back(bucket.slices.size());
    parts_.push_back(
        registered_tensor(shards, shard_of(bucket.count, shards.rank(), shards.size()).count(), bucket.dtype));
    grow(parts_.back().bytes());
  }
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    parameters_[p].second.set_grad_storage([this, p] { return memory_of(p); });
}

ShardedGradients::~ShardedGradients() {
  for (auto& [name, parameter] : parameters_)
    if (parameter.requires_grad()) parameter.set_grad_storage(nullptr);
  for (const auto& each : travelling_) {
    try {
      each.work->wait();
    } catch (const Error&) {
      // finish() or the group has reported it already.
    }
  }
}

void ShardedGradients::grow(std::size_t bytes) {
  bytes_ += bytes;
  peak_ = std::max(peak_, bytes_);
}

Tensor ShardedGradients::slice_of(std::size_t bucket, std::size_t slice) const {
  const BucketSlice& place = buckets_[bucket].slices[slice];
  return range(memory_[bucket], place.offset, place.offset + place.count)
      .reshape(parameters_[place.parameter].second.shape());
}

// A bucket begins when the memory of one of its gradients is asked for.
Tensor ShardedGradients::memory_of(std::size_t parameter) {
  const Place& place = places_.at(parameter);
  const Bucket& bucket = buckets_[place.bucket];
  Tensor& memory = memory_[place.bucket];
  if (!memory.defined()) {
    memory = flat_tensor(bucket.count, bucket.dtype);
    grow(memory.bytes());
    for (std::size_t s = 0; s < bucket.slices.size(); ++s) {
      const std::size_t end = s + 1 < bucket.slices.size() ? bucket.slices[s + 1].offset : bucket.count;
      range(memory, bucket.slices[s].offset + bucket.slices[s].count, end).fill(0);  // padding
    }
  }
  return slice_of(place.bucket, place.slice);
}

void ShardedGradients::begin_sum() {
  adds_.assign(adds_.size(), false);
  used_.assign(used_.size(), 0);
}

void ShardedGradients::ready(std::size_t parameter, bool used) {
  if (!parameters_.at(parameter).second.grad().defined()) memory_of(parameter).fill(0);
  Place& place = places_[parameter];
  if (place.ready)
    throw make_error(Errc::usage,
                     "the gradient of {} became ready twice in one pass: there were two backward passes, or several "
                     "losses use the parameter",
                     parameters_[parameter].first);
  place.ready = true;
  if (used) used_[parameter] = 1;
  --missing_[place.bucket];
  while (next_ < expected_->size() && missing_[expected_->at(next_)] == 0) start(expected_->at(next_++));
}

void ShardedGradients::start(std::size_t b) {
  while (travelling_.size() >= most_travelling) complete_oldest();
  const auto from = std::chrono::steady_clock::now();
  ProcessGroup& shards = *ranks_[b].shard;
  Travelling reduction{.bucket = b, .part = {}, .sent = {}, .work = nullptr, .start = from};
  if (options_.sent_as) reduction.sent = memory_[b].to(*options_.sent_as);
  if (adds_[b] || options_.sent_as)
    reduction.part =
        flat_tensor(static_cast<std::size_t>(parts_[b].numel()), options_.sent_as.value_or(parts_[b].dtype()));
  grow(bytes_of(reduction.part) + bytes_of(reduction.sent));
  reduction.work =
      shards.reduce_scatterv(span_of_tensor(reduction.sent.defined() ? reduction.sent : memory_[b]),
                             span_of_tensor(reduction.part.defined() ? reduction.part : parts_[b]),
                             shard_counts(buckets_[b].count, shards.size()), reduction_among_shards(ranks_[b]));
  travelling_.push_back(std::move(reduction));
  starting_ += std::chrono::steady_clock::now() - from;
}

void ShardedGradients::complete_oldest() {
  const auto from = std::chrono::steady_clock::now();
  Travelling& oldest = travelling_.front();
  const std::size_t b = oldest.bucket;
  oldest.work->wait();
  ranks_[b].replicate->allreduce(span_of_tensor(oldest.part.defined() ? oldest.part : parts_[b]), ReduceOp::average,
                                 {.blocking = true});
  const auto now = std::chrono::steady_clock::now();
  waited_ += now - from;
  if (transfers_) transfers_->push_back({.bucket = b, .start = oldest.start, .end = now});
  take_result(oldest);
  travelling_.pop_front();
  close(b);
}

void ShardedGradients::take_result(const Travelling& reduction) {
  const std::size_t b = reduction.bucket;
  Tensor& part = parts_[b];
  if (adds_[b])
    kernels::add_in_place(part, reduction.part.to(part.dtype()));
  else if (reduction.part.defined())
    part.copy_from(reduction.part.to(part.dtype()));
  bytes_ -= bytes_of(reduction.part) + bytes_of(reduction.sent);
  adds_[b] = true;
}

// Makes the variables release the memory.
void ShardedGradients::close(std::size_t b) {
  bytes_ -= memory_[b].bytes();
  memory_[b] = Tensor();
  for (const BucketSlice& slice : buckets_[b].slices) parameters_[slice.parameter].second.release_grad();
}

std::string ShardedGradients::unready_names() const {
  std::vector<std::string> names;
  for (std::size_t p = 0; p < places_.size(); ++p)
    if (!places_[p].ready && std::ranges::count(*expected_, places_[p].bucket) > 0)
      names.push_back(parameters_[p].first);
  return first_names(names);
}

bool ShardedGradients::has_begun() const {
  return std::ranges::any_of(places_, &Place::ready);
}

// Adds zeros for the parameters that the pass has left out.
void ShardedGradients::complete_expected() {
  for (const std::size_t b : *expected_)
    for (const BucketSlice& slice : buckets_[b].slices)
      if (!places_[slice.parameter].ready) ready(slice.parameter, false);
}

void ShardedGradients::share_use() {
  options_.may_leave_out->allreduce(span_of(used_), ReduceOp::max, {.blocking = true});
}

void ShardedGradients::finish() {
  if (options_.may_leave_out) complete_expected();
  if (next_ < expected_->size())
    throw make_error(Errc::usage, "the backward pass did not reach {}: every parameter has to take part in the loss",
                     unready_names());
  while (!travelling_.empty()) complete_oldest();
  if (options_.may_leave_out) share_use();
  next_ = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) missing_[b] = buckets_[b].slices.size();
  for (Place& place : places_) place.ready = false;
}

}  // namespace ddprun
