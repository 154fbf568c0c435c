#include "worker/trainer/commands/rank_use.h"

#include "worker/trainer/commands/session_traffic.h"
#include "worker/trainer/config/run_settings.h"
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

// The bytes of the state at this rank.
struct PartBytes {
  double own = 0;      // of its parts
  double written = 0;  // of those that it writes to a checkpoint
};

// Rank 0 writes a state that it has whole. Otherwise each rank writes its parts, and about an equal share of those that
// several have alike (stored::WriterChoice).
PartBytes part_bytes(TrainSession& session) {
  const auto parts = session.parts();
  const bool divided = session.forms().pipelined || parts->are_divided();  // a dry step knows no other stages' tensors
  const int rank = session.group().rank();
  PartBytes bytes;
  for (const auto* each : {&parts->model, &parts->optimizer, &parts->averages})
    for (const auto& tensor : each->tensors()) {
      const auto own = static_cast<double>(tensor.local_bytes(rank));
      if (own == 0) continue;
      bytes.own += own;
      bytes.written += divided ? own / static_cast<double>(tensor.holders(rank).size()) : own;
    }
  return bytes;
}

}  // namespace

RankUse rank_use(const TrainConfig& config, TrainSession& session, std::size_t activation_peak, const ModelPeaks& peaks,
                 std::size_t steps) {
  const TrainState& state = session.state();
  const MemoryUse memory = memory_of(state, activation_peak, peaks);
  const SharedBytes shared = shared_bytes(config, *state.model, session.forms());
  const double averages = state.ema ? bytes_of(state.ema->averages()) : 0;
  const bool copies_for_checkpoint = copies_for_checkpoints(config), copies_for_peers = config.checkpoint.peers > 0;
  const PartBytes parts = copies_for_checkpoint || copies_for_peers ? part_bytes(session) : PartBytes{};
  constexpr double copies = 4;  // the next ones are made before the last ones are dropped
  return {.parameters = number(memory.parameters),
          .gradients = number(memory.gradients),
          .optimizer = number(memory.optimizer),
          .averages = averages,
          .copied = copies_for_checkpoint ? parts.written : 0,
          .kept = copies_for_peers ? copies * parts.own : 0,
          .activations = number(memory.activations),
          .gathered = number(memory.peaks.parameters - memory.parameters),
          .shared_parameters = number(shared.parameters),
          .shared_buffers = number(shared.buffers),
          .shared_experts = number(shared.experts),
          .sent_within = number(sent_within_replica(session.forms(), steps)),
          .sent_for_update = sent_for_update(config, session)};
}

}  // namespace ddprun::trainer
