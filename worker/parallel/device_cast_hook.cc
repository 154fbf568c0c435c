#include <utility>
#include <vector>

#include "worker/parallel/device_hooks.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/owned_buffer.h"
#include "worker/reducer/bucket_stages.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

class DeviceCastHook final : public CommHook {
 public:
  DeviceCastHook(DType dtype, ProcessGroup& group) : dtype_(dtype), group_(group) {}

  void prepare(std::span<const GradBucket> buckets) override {
    for (const auto& [index, span, slices, after, last] : buckets) {
      const Shape shape{static_cast<std::int64_t>(span.count)};
      const auto memory = std::make_shared<RegisteredBuffer>(
          owned_buffer(group_, span.device, span.count * size_of(dtype_), MemoryOwner::communication));
      wide_.push_back(tensor_of_span(span));
      narrow_.push_back(Tensor::wrap(memory->data(), shape, dtype_, memory, wide_.back().device()));
    }
  }

  WorkPtr start(const GradBucket& bucket) override {
    Tensor wide = wide_[bucket.index], narrow = narrow_[bucket.index];
    kernels::copy(wide, narrow);
    return stages_.add(group_.allreduce(span_of_tensor(narrow), ReduceOp::average, {.after = bucket.after}),
                       {[wide, narrow]() mutable {
                         kernels::copy(narrow, wide);
                         return WorkPtr();
                       }});
  }

  bool accepts_devices() const override { return true; }
  void cancel() override { stages_.cancel(); }

 private:
  const DType dtype_;
  ProcessGroup& group_;
  std::vector<Tensor> wide_, narrow_;  // by bucket
  BucketStages stages_;
};

}  // namespace

std::unique_ptr<CommHook> make_device_cast_hook(DType dtype, ProcessGroup& group) {
  return std::make_unique<DeviceCastHook>(dtype, group);
}

}  // namespace ddprun
