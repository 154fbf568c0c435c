#include "ddprun/worker/parallel/flat_parameters.h"

#include <memory>

namespace ddprun {

FlatParameters::FlatParameters(ProcessGroup& group, std::vector<std::pair<std::string, Variable>> parameters,
                               std::vector<Bucket> buckets)
    : parameters_(std::move(parameters)), buckets_(std::move(buckets)) {
  for (const Bucket& bucket : buckets_) {
    const auto buffer = std::make_shared<RegisteredBuffer>(group.allocate(bucket.count * size_of(bucket.dtype)));
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

}  // namespace ddprun
