#include "worker/trainer/state/state_snapshot.h"

#include <cstddef>
#include <utility>

#include "worker/trainer/state/run_checkpoint.h"

namespace ddprun::trainer {

std::shared_ptr<checkpoint::Snapshot> snapshot_of(checkpoint::Content content, const TrainState& state,
                                                  checkpoint::CopyMemory& memory) {
  checkpoint::Snapshot::Memory buffers, others;
  const auto add = [](const Tensor& tensor, checkpoint::Snapshot::Memory& to) {
    to.emplace_back(static_cast<const std::byte*>(tensor.raw()), tensor.bytes());
  };
  for (const auto& [name, buffer] : state.model->named_buffers()) add(buffer, buffers);
  for (const auto& [name, parameter] : state.model->named_parameters()) add(parameter.value(), others);
  for (const auto& [name, part] : state.parts) add(part.value(), others);
  const auto all = tensors_of(state);
  for (const auto* tensors : {&all.optimizer, &all.averages})
    for (const auto& [name, tensor] : *tensors) add(tensor, others);
  return std::make_shared<checkpoint::Snapshot>(std::move(content), buffers, others, memory);
}

}  // namespace ddprun::trainer
