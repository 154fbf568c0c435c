#pragma once

#include <cstddef>
#include <memory>

#include "worker/comm/process_group.h"
#include "worker/tensor/tensor.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/step_values.h"

namespace ddprun::trainer {

// Lets the update of a model on a CUDA device be queued behind the reduction of its gradients, for which the host then
// does not wait. If that is cancelled, a number on the device becomes 1, and the kernels of an update that find it do
// nothing: the state stays that of the last whole step.
//
// Ownership: the group outlives this object. Threads: any.
class UpdateGate final : public LateReader {
 public:
  // Returns null where the host waits for gradients: without a device or other ranks, and if each rank steps by its
  // own. group: the ranks that average gradients.
  static std::unique_ptr<UpdateGate> make(const TrainConfig& config, Device device, const ProcessGroup& group);

  UpdateGate(Device device, const ProcessGroup& group)
      : group_(group), cancelled_(Tensor::zeros({1}, DType::float32, device)) {}

  // DdpOptions::cancelled, and the flag of optim::Optimizer::skip_if().
  const Tensor& cancelled() const { return cancelled_; }
  void copy_to_host(LateValues& late) override { copied_ = late.add(cancelled_); }
  // Throws the group's error if an update was cancelled.
  void read(const LateValues& late) override;

 private:
  const ProcessGroup& group_;
  const Tensor cancelled_;
  std::size_t copied_ = 0;
};

}  // namespace ddprun::trainer
