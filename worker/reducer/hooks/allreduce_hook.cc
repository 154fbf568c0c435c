#include "worker/reducer/hooks/allreduce_hook.h"

namespace ddprun {

namespace {

class AllreduceHook final : public CommHook {
 public:
  explicit AllreduceHook(ProcessGroup& group) : group_(group) {}
  WorkPtr start(const GradBucket& bucket) override {
    return group_.allreduce(bucket.span, ReduceOp::average, {.after = bucket.after});
  }
  bool accepts_devices() const override { return true; }

 private:
  ProcessGroup& group_;
};

}  // namespace

std::unique_ptr<CommHook> make_allreduce_hook(ProcessGroup& group) {
  return std::make_unique<AllreduceHook>(group);
}

}  // namespace ddprun
