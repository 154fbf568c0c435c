#include "worker/parallel/forms/data/zero/sharded_parameters.h"

#include <algorithm>

#include "common/error.h"
#include "worker/autograd/node.h"
#include "worker/parallel/group_tensors.h"
#include "worker/reducer/shards.h"

namespace ddprun {

ShardedParameters::ShardedParameters(std::vector<BucketRanks> ranks,
                                     std::vector<std::pair<std::string, Variable>> parameters,
                                     std::vector<Bucket> buckets)
    : ranks_(std::move(ranks)),
      parameters_(std::move(parameters)),
      buckets_(std::move(buckets)),
      bucket_of_(parameters_.size()),
      casts_(buckets_.size()),
      cast_places_(parameters_.size()),
      cast_bytes_(buckets_.size()),
      states_(buckets_.size()) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    ProcessGroup& shards = *ranks_.at(b).shard;
    const auto memory = std::make_shared<ReleasableMemory>(bucket.count * size_of(bucket.dtype));
    memory_.push_back(memory);
    for (const BucketSlice& slice : bucket.slices) {
      bucket_of_[slice.parameter] = b;
      Variable& parameter = parameters_[slice.parameter].second;
      const std::shared_ptr<void> place(memory, memory->data() + slice.offset * size_of(bucket.dtype));
      Tensor value = Tensor::wrap(place.get(), parameter.shape(), parameter.dtype(), place);
      value.copy_from(parameter.value().contiguous());
      parameter.set_value(value);
    }
    if (bucket.dtype == DType::float32) make_cast_places(b);
    const Shard own = shard_of(bucket.count, shards.rank(), shards.size());
    parts_.push_back(registered_tensor(shards, own.count(), bucket.dtype));
    parts_.back().copy_from(
        Tensor::wrap(memory->data() + own.begin * size_of(bucket.dtype), parts_.back().shape(), bucket.dtype, memory));
    bytes_ += parts_.back().bytes() + bucket.count * size_of(bucket.dtype);
    drop(b);
  }
  reset_peak();
}

ShardedParameters::~ShardedParameters() {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const auto leaf = autograd::Access::leaf(parameters_[p].second).lock();
    if (leaf->cast_place == cast_places_[p]) leaf->cast_place = nullptr;
  }
  for (const auto& state : states_) {
    try {
      if (state.work) state.work->wait();
    } catch (const Error&) {
      // The group has reported it already.
    }
  }
}

Span ShardedParameters::whole(std::size_t b) const {
  return {memory_[b]->data(), buckets_[b].count, buckets_[b].dtype};
}

Span ShardedParameters::part(std::size_t b) const {
  return span_of_tensor(parts_[b]);
}

Counts ShardedParameters::counts(std::size_t b) const {
  return shard_counts(buckets_[b].count, ranks_[b].shard->size());
}

void ShardedParameters::become(std::size_t b, State state) {
  states_[b].state = state;
  for (const BucketSlice& slice : buckets_[b].slices)
    parameters_[slice.parameter].second.value().storage()->set_present(state == State::present);
}

void ShardedParameters::drop(std::size_t b) {
  if (casts_[b]) take_casts_away(b);
  memory_[b]->release();
  bytes_ -= buckets_[b].count * size_of(buckets_[b].dtype);
  become(b, State::absent);
}

void ShardedParameters::make_cast_places(std::size_t b) {
  constexpr std::size_t bytes_of_cast = 2;
  const auto memory = casts_[b] = std::make_shared<ReleasableMemory>(buckets_[b].count * bytes_of_cast);
  for (const BucketSlice& slice : buckets_[b].slices) {
    auto& place = cast_places_[slice.parameter];
    place = std::make_shared<autograd::CastPlace>(
        std::shared_ptr<void>(memory, memory->data() + slice.offset * bytes_of_cast));
    autograd::Access::leaf(parameters_[slice.parameter].second).lock()->cast_place = place;
  }
}

void ShardedParameters::take_casts_away(std::size_t b) {
  count_casts(b);
  for (const BucketSlice& slice : buckets_[b].slices) cast_places_[slice.parameter]->take_away();
  casts_[b]->release();
  bytes_ -= std::exchange(cast_bytes_[b], 0);
}

void ShardedParameters::bring_casts_back(std::size_t b) {
  for (const BucketSlice& slice : buckets_[b].slices)
    cast_places_[slice.parameter]->bring_back(parameters_[slice.parameter].second.value());
  count_casts(b);
}

void ShardedParameters::count_casts(std::size_t b) {
  std::size_t bytes = 0;
  for (const BucketSlice& slice : buckets_[b].slices) bytes += cast_places_[slice.parameter]->bytes();
  bytes_ += bytes - std::exchange(cast_bytes_[b], bytes);
  peak_ = std::max(peak_, bytes_);
}

void ShardedParameters::prefetch(std::size_t b) {
  BucketState& state = states_[b];
  if (state.state != State::absent) return;
  bytes_ += buckets_[b].count * size_of(buckets_[b].dtype);
  peak_ = std::max(peak_, bytes_);
  become(b, State::coming);
  state.work = ranks_[b].shard->allgatherv(part(b), whole(b), counts(b));
}

void ShardedParameters::acquire(std::size_t b) {
  prefetch(b);
  BucketState& state = states_[b];
  ++state.users;
  if (state.state == State::present) return;
  const auto from = std::chrono::steady_clock::now();
  std::exchange(state.work, nullptr)->wait();
  waited_ += std::chrono::steady_clock::now() - from;
  become(b, State::present);
  if (casts_[b]) bring_casts_back(b);
}

void ShardedParameters::release(std::size_t b, bool keep) {
  if (--states_[b].users == 0 && !keep) drop(b);
}

void ShardedParameters::drop_all() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketState& state = states_[b];
    state.users = 0;
    if (state.state == State::coming) std::exchange(state.work, nullptr)->wait();
    if (state.state != State::absent) drop(b);
  }
}

void ShardedParameters::keep_all() {
  for (BucketState& state : states_) state.users = 0;
}

void ShardedParameters::parts_updated() {
  for (const auto& [name, parameter] : parameters_) parameter.value().storage()->bump_version();
}

}  // namespace ddprun
