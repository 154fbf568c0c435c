#include "worker/reducer/comm_hook.h"

#include <utility>

namespace ddprun {
namespace {

class FunctionHook final : public CommHook {
 public:
  explicit FunctionHook(std::function<WorkPtr(const GradBucket&)> start) : start_(std::move(start)) {}
  WorkPtr start(const GradBucket& bucket) override { return start_(bucket); }

 private:
  const std::function<WorkPtr(const GradBucket&)> start_;
};

}  // namespace

std::unique_ptr<CommHook> make_comm_hook(std::function<WorkPtr(const GradBucket&)> start) {
  return std::make_unique<FunctionHook>(std::move(start));
}

}  // namespace ddprun
