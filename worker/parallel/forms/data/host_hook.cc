#include <cstring>
#include <utility>
#include <vector>

#include "worker/parallel/forms/data/device_hooks.h"
#include "worker/parallel/group_tensors.h"
#include "worker/reducer/bucket_stages.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

// A hook's values in the padding do not matter on the host; the device's are to stay zero.
void clear_padding(const GradBucket& bucket) {
  const std::size_t unit = size_of(bucket.span.dtype);
  auto* const start = static_cast<std::byte*>(bucket.span.data);
  for (std::size_t s = 0; s < bucket.slices.size(); ++s) {
    const std::size_t from = bucket.slices[s].offset + bucket.slices[s].count;
    const std::size_t to = s + 1 < bucket.slices.size() ? bucket.slices[s + 1].offset : bucket.span.count;
    std::memset(start + from * unit, 0, (to - from) * unit);
  }
}

class HostHook final : public CommHook {
 public:
  HostHook(std::unique_ptr<CommHook> hook, ProcessGroup& group) : hook_(std::move(hook)), group_(group) {}

  void prepare(std::span<const GradBucket> buckets) override {
    for (const GradBucket& bucket : buckets) {
      const Tensor memory = registered_tensor(group_, bucket.span.count, bucket.span.dtype);
      on_device_.push_back(tensor_of_span(bucket.span));
      on_host_.push_back(memory);
      GradBucket& copy = copies_.emplace_back(bucket);
      copy.span = span_of_tensor(memory);
      copy.after = nullptr;
    }
    hook_->prepare(copies_);
  }

  WorkPtr start(const GradBucket& bucket) override {
    Tensor device = on_device_[bucket.index], host = on_host_[bucket.index];
    const GradBucket& copy = copies_[bucket.index];
    kernels::copy(device, host);
    return stages_.add(hook_->start(copy), {[device, host, &copy]() mutable {
                         clear_padding(copy);
                         kernels::copy(host, device);
                         return WorkPtr();
                       }});
  }

  bool accepts_devices() const override { return true; }
  void cancel() override {
    hook_->cancel();
    stages_.cancel();
  }
  std::vector<HookState> state() override { return hook_->state(); }

 private:
  const std::unique_ptr<CommHook> hook_;
  ProcessGroup& group_;
  std::vector<Tensor> on_device_, on_host_;  // by bucket
  std::vector<GradBucket> copies_;           // by bucket, the same on the host
  BucketStages stages_;
};

}  // namespace

std::unique_ptr<CommHook> make_host_hook(std::unique_ptr<CommHook> hook, ProcessGroup& group) {
  return std::make_unique<HostHook>(std::move(hook), group);
}

}  // namespace ddprun
