#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/parallel/forms/data/device_hooks.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/owned_buffer.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

// An allreduce of 16 bits, behind which its result is widened once.
class CastWork final : public Work {
 public:
  CastWork(WorkPtr reduced, Tensor narrow, Tensor wide)
      : reduced_(std::move(reduced)), narrow_(std::move(narrow)), wide_(std::move(wide)) {}

  void wait(Deadline deadline) override {
    reduced_->wait(deadline);
    widen();
  }
  void order(void* stream, float* cancelled) override {
    reduced_->order(stream, cancelled);
    widen();
  }
  bool done() const override { return reduced_->done(); }
  std::optional<Error> error() const override { return reduced_->error(); }

 private:
  void widen() {
    if (!std::exchange(widened_, true)) kernels::copy(narrow_, wide_);
  }

  const WorkPtr reduced_;
  const Tensor narrow_;
  Tensor wide_;
  bool widened_ = false;
};

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
    return std::make_shared<CastWork>(
        group_.allreduce(span_of_tensor(narrow), ReduceOp::average, {.after = bucket.after}), narrow, wide);
  }

  bool accepts_devices() const override { return true; }

 private:
  const DType dtype_;
  ProcessGroup& group_;
  std::vector<Tensor> wide_, narrow_;  // by bucket
};

}  // namespace

std::unique_ptr<CommHook> make_device_cast_hook(DType dtype, ProcessGroup& group) {
  return std::make_unique<DeviceCastHook>(dtype, group);
}

}  // namespace ddprun
