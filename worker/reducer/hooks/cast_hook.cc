#include "worker/reducer/hooks/cast_hook.h"

#include <utility>
#include <vector>

#include "worker/reducer/bucket_stages.h"
#include "worker/reducer/hooks/float_conversion.h"

namespace ddprun {
namespace {

class CastHook final : public CommHook {
 public:
  CastHook(DType dtype, ProcessGroup& group, std::unique_ptr<CommHook> inner)
      : dtype_(dtype), group_(group), inner_(std::move(inner)) {}

  void prepare(std::span<const GradBucket> buckets) override {
    for (const auto& bucket : buckets) {
      auto& memory = memory_.emplace_back(group_.allocate(bucket.span.count * size_of(dtype_)));
      auto& narrow = narrow_.emplace_back(bucket);
      narrow.span = {memory.data(), bucket.span.count, dtype_};
      scratch_.resize(std::max(scratch_.size(), bucket.span.count));
    }
    inner_->prepare(narrow_);
  }

  WorkPtr start(const GradBucket& bucket) override {
    const auto& narrow = narrow_[bucket.index];
    convert(bucket.span, scratch_.data());
    convert(scratch_.data(), narrow.span);
    return stages_.add(inner_->start(narrow), {[this, wide = bucket.span, &narrow] {
                         convert(narrow.span, scratch_.data());
                         convert(scratch_.data(), wide);
                         return WorkPtr();
                       }});
  }

  void cancel() override {
    inner_->cancel();
    stages_.cancel();
  }
  std::vector<HookState> state() override { return inner_->state(); }

 private:
  const DType dtype_;
  ProcessGroup& group_;
  const std::unique_ptr<CommHook> inner_;
  std::vector<RegisteredBuffer> memory_;  // by bucket
  std::vector<GradBucket> narrow_;        // by bucket: the same in 16 bits
  std::vector<float> scratch_;            // has the size of the largest bucket
  BucketStages stages_;
};

}  // namespace

std::unique_ptr<CommHook> make_cast_hook(DType dtype, ProcessGroup& group, std::unique_ptr<CommHook> inner) {
  return std::make_unique<CastHook>(dtype, group, std::move(inner));
}

}  // namespace ddprun
