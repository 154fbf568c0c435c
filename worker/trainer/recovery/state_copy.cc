#include "ddprun/worker/trainer/recovery/state_copy.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ddprun/worker/trainer/state/run_checkpoint.h"

namespace ddprun::trainer {
namespace {

void broadcast_tensors(const optim::NamedTensors& tensors, ProcessGroup& group, int source) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.bytes() == 0) continue;
    Tensor target = tensor;
    group.broadcast({target.raw(), target.bytes(), DType::uint8}, source, {.blocking = true});
    target.storage()->bump_version();
  }
}

// Numbers that a double holds exactly, in order. Text would round them.
class Numbers {
 public:
  void add(double value) { values.push_back(value); }
  void add(std::int64_t value) { values.push_back(static_cast<double>(value)); }
  void add(const std::optional<double>& value) {
    add(value ? 1.0 : 0.0);
    add(value.value_or(0));
  }
  std::vector<double> values;
};

class NumberReader {
 public:
  explicit NumberReader(const std::vector<double>& values) : at_(values.begin()) {}
  double real() { return *at_++; }
  std::int64_t integer() { return static_cast<std::int64_t>(real()); }
  bool flag() { return real() != 0; }
  std::optional<double> optional() {
    const bool is_there = flag();
    const double value = real();
    return is_there ? std::optional(value) : std::nullopt;
  }

 private:
  std::vector<double>::const_iterator at_;
};

void add(Numbers& to, const std::optional<checkpoint::Plateau>& plateau) {
  to.add(plateau ? std::int64_t{1} : 0);
  if (!plateau) return;
  to.add(plateau->lr);
  to.add(plateau->best);
  to.add(plateau->bad_evaluations);
  to.add(plateau->cooldown);
}

std::optional<checkpoint::Plateau> read_plateau(NumberReader& from) {
  if (!from.flag()) return std::nullopt;
  checkpoint::Plateau plateau;
  plateau.lr = from.real();
  plateau.best = from.optional();
  plateau.bad_evaluations = from.integer();
  plateau.cooldown = from.integer();
  return plateau;
}

// What steps and evaluations change of it.
void add(Numbers& to, const checkpoint::RunState& run) {
  for (const auto value : {run.step, run.epoch, run.samples, run.skipped_steps}) to.add(value);
  to.add(run.lr);
  to.add(run.best_loss);
  to.add(run.loss_scale ? std::optional(run.loss_scale->scale) : std::nullopt);
  to.add(run.loss_scale ? run.loss_scale->good_steps : 0);
  add(to, run.plateau);
  to.add(std::ssize(run.gradient_norms));
  for (const double norm : run.gradient_norms) to.add(norm);
}

void read(NumberReader& from, checkpoint::RunState& run) {
  for (auto* value : {&run.step, &run.epoch, &run.samples, &run.skipped_steps}) *value = from.integer();
  run.lr = from.real();
  run.best_loss = from.optional();
  const auto scale = from.optional();
  const auto good_steps = from.integer();
  if (scale) run.loss_scale = checkpoint::LossScale{.scale = *scale, .good_steps = good_steps};
  run.plateau = read_plateau(from);
  run.gradient_norms.resize(static_cast<std::size_t>(from.integer()));
  for (double& norm : run.gradient_norms) norm = from.real();
}

// What observers read of a step.
constexpr std::array times = {&StepTimes::data,      &StepTimes::upload, &StepTimes::forward, &StepTimes::backward,
                              &StepTimes::optimizer, &StepTimes::start,  &StepTimes::wait};

void add(Numbers& to, const StepResult& result) {
  for (const auto value : {result.epoch, result.steps, result.samples}) to.add(value);
  to.add(result.loss);
  to.add(result.grad_norm);
  to.add(result.loss_scale);
  for (const bool value : {result.skipped, result.ends_epoch, result.stop_requested}) to.add(std::int64_t{value});
  to.add(static_cast<std::int64_t>(result.bytes_sent));
  for (const auto time : times) to.add((result.times.*time).count());
}

StepResult read_result(NumberReader& from) {
  StepResult result;
  for (auto* value : {&result.epoch, &result.steps, &result.samples}) *value = from.integer();
  result.loss = from.real();
  result.grad_norm = from.optional();
  result.loss_scale = from.optional();
  for (auto* value : {&result.skipped, &result.ends_epoch, &result.stop_requested}) *value = from.flag();
  result.bytes_sent = static_cast<std::uint64_t>(from.integer());
  for (const auto time : times) result.times.*time = profiler::Seconds(from.real());
  return result;
}

void add(Numbers& to, const std::optional<LastStep>& last) {
  to.add(last ? std::int64_t{1} : 0);
  if (!last) return;
  add(to, last->result);
  to.add(last->best_loss);
  add(to, last->plateau);
}

std::optional<LastStep> read_last(NumberReader& from) {
  if (!from.flag()) return std::nullopt;
  LastStep last;
  last.result = read_result(from);
  last.best_loss = from.optional();
  last.plateau = read_plateau(from);
  return last;
}

std::vector<double> broadcast_numbers(std::vector<double> numbers, ProcessGroup& group, int source) {
  std::vector<std::int64_t> size{std::ssize(numbers)};
  group.broadcast(span_of(size), source, {.blocking = true});
  numbers.resize(static_cast<std::size_t>(size[0]));
  group.broadcast(span_of(numbers), source, {.blocking = true});
  return numbers;
}

}  // namespace

void copy_state(TrainState& state, StepBackup& backup, ProcessGroup& group, int source) {
  Numbers own;
  add(own, state.run);
  add(own, backup.last());
  const auto numbers = broadcast_numbers(std::move(own.values), group, source);
  broadcast_tensors(tensors_of(*state.model), group, source);
  broadcast_tensors(state.optimizer->state(), group, source);
  std::vector<std::int64_t> has_averages{state.ema && state.ema->started() ? 1 : 0};
  group.broadcast(span_of(has_averages), source, {.blocking = true});
  if (has_averages[0] != 0) broadcast_tensors(state.ema->averages(), group, source);

  if (group.rank() == source) return;
  NumberReader from(numbers);
  read(from, state.run);
  backup.set_last(read_last(from));
  state.continue_from(checkpoint::RunState(state.run));
  if (has_averages[0] != 0) state.ema->set_started();
}

}  // namespace ddprun::trainer
