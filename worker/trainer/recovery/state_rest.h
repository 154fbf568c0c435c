#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "worker/trainer/session/step_backup.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// What belongs to the state of a run beside its tensors. A plain value.
struct StateRest {
  std::string run;            // the JSON of checkpoint::RunState
  bool has_averages = false;  // whether those of train.ema have begun
  std::optional<LastStep> last;
};

StateRest rest_of(const TrainState& state, const StepBackup& backup);
// Sets it; the optimizer exists. source: who it is from, for errors.
void take_rest(const StateRest& rest, TrainState& state, StepBackup& backup, const std::string& source);

// Bytes for messages between ranks, with numbers as they are, and the inverse.
std::string encode(const StateRest& rest);
StateRest decode_state_rest(std::string_view bytes);
std::string encode_last(const std::optional<LastStep>& last);
std::optional<LastStep> decode_last(std::string_view bytes);

}  // namespace ddprun::trainer
