#include "worker/trainer/recovery/state_copy.h"

#include <string>
#include <vector>

#include "worker/comm/collectives.h"
#include "worker/trainer/recovery/state_rest.h"
#include "worker/trainer/recovery/tensor_transfer.h"
#include "worker/trainer/state/run_checkpoint.h"

namespace ddprun::trainer {

void copy_last_step(StepBackup& backup, ProcessGroup& group, int source) {
  const auto last = broadcast_bytes(group, encode_last(backup.last()), source);
  if (group.rank() != source) backup.set_last(decode_last(last));
}

void copy_state(TrainState& state, StepBackup& backup, ProcessGroup& group, const Catchup& catchup) {
  const int source = catchup.source;
  state.await_readers();
  // All in one message, since ranks wait for each other in each operation.
  const auto rest = decode_state_rest(broadcast_bytes(group, encode(rest_of(state, backup)), source));
  const auto tensors = tensors_of(state);
  std::vector<Tensor> copied;
  const auto add_all = [&](const auto& named) {
    for (const auto& [name, tensor] : named) copied.push_back(tensor);
  };
  add_all(tensors.model);
  add_all(tensors.optimizer);
  if (rest.has_averages) add_all(tensors.averages);
  transfer_tensors(copied, group, catchup.lagging);
  if (group.rank() != source) take_rest(rest, state, backup, "the state of rank " + std::to_string(source));
}

}  // namespace ddprun::trainer
