#include "worker/parallel/forms/data/scaled_hook.h"

#include <utility>
#include <vector>

#include "worker/parallel/group_tensors.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

class ScaledHook final : public CommHook {
 public:
  ScaledHook(std::unique_ptr<CommHook> hook, double factor) : hook_(std::move(hook)), factor_(factor) {}

  void prepare(std::span<const GradBucket> buckets) override { hook_->prepare(buckets); }
  WorkPtr start(const GradBucket& bucket) override {
    Tensor gradients = tensor_of_span(bucket.span);
    gradients.copy_from(kernels::scale(gradients, factor_));
    return hook_->start(bucket);
  }
  bool accepts_devices() const override { return hook_->accepts_devices(); }
  void cancel() override { hook_->cancel(); }
  std::vector<HookState> state() override { return hook_->state(); }

 private:
  const std::unique_ptr<CommHook> hook_;
  const double factor_;
};

}  // namespace

std::unique_ptr<CommHook> make_scaled_hook(std::unique_ptr<CommHook> hook, double factor) {
  return std::make_unique<ScaledHook>(std::move(hook), factor);
}

}  // namespace ddprun
