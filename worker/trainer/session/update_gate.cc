#include "worker/trainer/session/update_gate.h"

#include "common/error.h"

namespace ddprun::trainer {

std::unique_ptr<UpdateGate> UpdateGate::make(const TrainConfig& config, Device device, const ProcessGroup& group) {
  if (device.type != DeviceType::cuda || group.size() == 1 || config.parallel.strategy != "ddp") return nullptr;
  return std::make_unique<UpdateGate>(device, group);
}

void UpdateGate::read(const LateValues& late) {
  if (late.at(copied_) == 0) return;
  if (const auto failure = group_.failure()) throw Error(*failure);
  throw Error(Errc::aborted, "the group was destroyed while gradients were averaged");
}

}  // namespace ddprun::trainer
