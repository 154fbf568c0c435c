#include "worker/trainer/session/update_gate.h"

#include "common/error.h"

namespace ddprun::trainer {
namespace {

// Averages, and a decision about the step, are not made by the optimizer's kernels; SGD with dampening counts its steps
// on the host; hooks but the plain allreduce work when the host waits for them.
bool is_whole_update_of_kernels(const TrainConfig& c) {
  return c.parallel.strategy == "ddp" && c.parallel.hook == "allreduce" && c.train.precision != "fp16" &&
         c.train.ema == 0 && c.optim.skip_outliers == 0 && (c.optim.name != "sgd" || c.optim.dampening == 0);
}

}  // namespace

std::unique_ptr<UpdateGate> UpdateGate::make(const TrainConfig& config, Device device, const ProcessGroup& group) {
  if (device.type != DeviceType::cuda || group.size() == 1 || !is_whole_update_of_kernels(config)) return nullptr;
  return std::make_unique<UpdateGate>(device, group);
}

void UpdateGate::require_open(double cancelled) const {
  if (cancelled == 0) return;
  if (const auto failure = group_.failure()) throw Error(*failure);
  throw Error(Errc::aborted, "the group was destroyed while gradients were averaged");
}

}  // namespace ddprun::trainer
