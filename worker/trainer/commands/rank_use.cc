#include "worker/trainer/commands/rank_use.h"

#include "worker/trainer/commands/session_traffic.h"
#include "worker/trainer/report/memory_report.h"
#include "worker/trainer/session/train_session.h"

namespace ddprun::trainer {
namespace {

double number(std::size_t bytes) {
  return static_cast<double>(bytes);
}

double bytes_of(const optim::NamedTensors& tensors) {
  double sum = 0;
  for (const auto& [name, tensor] : tensors) sum += number(tensor.bytes());
  return sum;
}

// Returns whether the state is copied for a checkpoint, because an update may come before it is written.
bool copies_state(const TrainConfig& config) {
  return !config.checkpoint.dir.empty() && config.checkpoint.background && config.parallel.strategy != "local_sgd";
}

// Returns the bytes of what this rank updates of the parameters, and of the buffers.
double bytes_of_parts(const TrainSession& session) {
  const ParallelForms& forms = session.forms();
  const DividedParameters* divided = forms.parallelism.divided();
  const auto& model = *session.state().model;
  double sum = 0;
  for (const auto& [name, buffer] : model.named_buffers()) sum += number(buffer.bytes());
  if (divided)
    for (const Tensor& part : divided->values) sum += number(part.bytes());
  else
    for (const auto& [name, parameter] :
         forms.pipelined ? forms.pipelined->pipeline().parameters() : model.named_parameters())
      sum += number(parameter.value().bytes());
  return sum;
}

}  // namespace

RankUse rank_use(const TrainConfig& config, const TrainSession& session, std::size_t activation_peak,
                 const ModelPeaks& peaks, std::size_t steps) {
  const TrainState& state = session.state();
  const MemoryUse memory = memory_of(state, activation_peak, peaks);
  const SharedBytes shared = shared_bytes(config, *state.model, session.forms());
  const double averages = state.ema ? bytes_of(state.ema->averages()) : 0;
  constexpr double copies = 4;  // the next ones are made before the last ones are dropped
  return {.parameters = number(memory.parameters),
          .gradients = number(memory.gradients),
          .optimizer = number(memory.optimizer),
          .averages = averages,
          .copied = copies_state(config) ? bytes_of_parts(session) + number(memory.optimizer) + averages : 0,
          .kept = config.checkpoint.peers > 0 ? copies * (bytes_of_parts(session) + number(memory.optimizer) + averages)
                                              : 0,
          .activations = number(memory.activations),
          .gathered = number(memory.peaks.parameters - memory.parameters),
          .shared_parameters = number(shared.parameters),
          .shared_buffers = number(shared.buffers),
          .shared_experts = number(shared.experts),
          .sent_within = number(sent_within_replica(session.forms(), steps))};
}

}  // namespace ddprun::trainer
