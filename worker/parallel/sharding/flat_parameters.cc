#include "worker/parallel/sharding/flat_parameters.h"

#include <memory>

namespace ddprun {

FlatParameters::FlatParameters(std::vector<ProcessGroup*> groups,
                               std::vector<std::pair<std::string, Variable>> parameters, std::vector<Bucket> buckets)
    : groups_(std::move(groups)), parameters_(std::move(parameters)), buckets_(std::move(buckets)) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    const auto buffer =
        std::make_shared<RegisteredBuffer>(groups_.at(b)->allocate(bucket.count * size_of(bucket.dtype)));
    memory_.push_back(buffer);
    for (const BucketSlice& slice : bucket.slices) {
      Variable& parameter = parameters_[slice.parameter].second;
      std::shared_ptr<void> place(buffer, buffer->data() + slice.offset * size_of(bucket.dtype));
      Tensor value = Tensor::wrap(place.get(), parameter.shape(), parameter.dtype(), place, parameter.device());
      value.copy_from(parameter.value().contiguous());
      parameter.set_value(value);
    }
  }
}

Span FlatParameters::memory(std::size_t bucket) const {
  return {memory_.at(bucket)->data(), buckets_[bucket].count, buckets_[bucket].dtype};
}

std::vector<Tensor> FlatParameters::parts() const {
  std::vector<Tensor> all;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    all.push_back(part(b, shard_of(buckets_[b].count, groups_[b]->rank(), groups_[b]->size())));
  return all;
}

Tensor FlatParameters::part(std::size_t bucket, const Shard& elements) const {
  const DType dtype = buckets_[bucket].dtype;
  const std::shared_ptr<void> place(memory_[bucket], memory_[bucket]->data() + elements.begin * size_of(dtype));
  return Tensor::wrap(place.get(), {static_cast<std::int64_t>(elements.count())}, dtype, place);
}

// Blocking: there is nothing to compute meanwhile, so the calling thread does it without waking another one.
void FlatParameters::gather() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    ProcessGroup& group = *groups_[b];
    const Span all = memory(b);
    const Shard own = shard_of(all.count, group.rank(), group.size());
    const ConstSpan part{static_cast<const std::byte*>(all.data) + own.begin * size_of(all.dtype), own.count(),
                         all.dtype};
    group.allgatherv(part, all, shard_counts(all.count, group.size()), {.blocking = true});
  }
  for (const auto& [name, parameter] : parameters_) parameter.value().storage()->bump_version();
}

}  // namespace ddprun
