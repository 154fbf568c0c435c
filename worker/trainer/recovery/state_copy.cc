#include "ddprun/worker/trainer/recovery/state_copy.h"

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "ddprun/worker/trainer/state/run_checkpoint.h"

namespace ddprun::trainer {
namespace {

std::string broadcast_text(std::string text, ProcessGroup& group, int source) {
  std::vector<std::int64_t> size{static_cast<std::int64_t>(text.size())};
  group.broadcast(span_of(size), source, {.blocking = true});
  text.resize(static_cast<std::size_t>(size[0]));
  if (!text.empty()) group.broadcast({text.data(), text.size(), DType::uint8}, source, {.blocking = true});
  return text;
}

void broadcast_tensors(const optim::NamedTensors& tensors, ProcessGroup& group, int source) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.bytes() == 0) continue;
    Tensor target = tensor;
    group.broadcast({target.raw(), target.bytes(), DType::uint8}, source, {.blocking = true});
    target.storage()->bump_version();
  }
}

// What observers read of a step, as numbers that a double holds exactly.
constexpr std::array times = {&StepTimes::data,      &StepTimes::upload, &StepTimes::forward, &StepTimes::backward,
                              &StepTimes::optimizer, &StepTimes::start,  &StepTimes::wait};

std::vector<double> numbers_of(const std::optional<LastStep>& last) {
  if (!last) return {0};
  const auto& r = last->result;
  const auto number = [](auto value) { return static_cast<double>(value); };
  std::vector<double> all{1,
                          number(r.epoch),
                          number(r.steps),
                          number(r.samples),
                          r.loss,
                          number(r.grad_norm.has_value()),
                          r.grad_norm.value_or(0),
                          number(r.loss_scale.has_value()),
                          r.loss_scale.value_or(0),
                          number(r.skipped),
                          number(r.ends_epoch),
                          number(r.stop_requested),
                          number(r.bytes_sent)};
  for (const auto time : times) all.push_back((r.times.*time).count());
  return all;
}

StepResult result_of(const std::vector<double>& numbers) {
  auto at = numbers.begin() + 1;
  const auto integer = [&] { return static_cast<std::int64_t>(*at++); };
  const auto optional = [&] {
    const bool is_there = *at++ != 0;
    const double value = *at++;
    return is_there ? std::optional(value) : std::nullopt;
  };
  StepResult r;
  r.epoch = integer();
  r.steps = integer();
  r.samples = integer();
  r.loss = *at++;
  r.grad_norm = optional();
  r.loss_scale = optional();
  r.skipped = *at++ != 0;
  r.ends_epoch = *at++ != 0;
  r.stop_requested = *at++ != 0;
  r.bytes_sent = static_cast<std::uint64_t>(*at++);
  for (const auto time : times) r.times.*time = profiler::Seconds(*at++);
  return r;
}

std::vector<double> broadcast_numbers(std::vector<double> numbers, ProcessGroup& group, int source) {
  std::vector<std::int64_t> size{std::ssize(numbers)};
  group.broadcast(span_of(size), source, {.blocking = true});
  numbers.resize(static_cast<std::size_t>(size[0]));
  group.broadcast(span_of(numbers), source, {.blocking = true});
  return numbers;
}

}  // namespace

void copy_state(TrainState& state, StepRecord& record, ProcessGroup& group, int source) {
  const auto run = checkpoint::run_state_from_json(broadcast_text(checkpoint::to_json(state.run), group, source),
                                                   "the state of another rank");
  const auto numbers = broadcast_numbers(numbers_of(record.last()), group, source);
  broadcast_tensors(tensors_of(*state.model), group, source);
  broadcast_tensors(state.optimizer->state(), group, source);
  std::vector<std::int64_t> has_averages{state.ema && state.ema->started() ? 1 : 0};
  group.broadcast(span_of(has_averages), source, {.blocking = true});
  if (has_averages[0] != 0) broadcast_tensors(state.ema->averages(), group, source);

  if (group.rank() == source) return;
  state.continue_from(run);
  state.run.lr = run.lr;
  if (has_averages[0] != 0) state.ema->set_started();
  record.set_last(
      numbers[0] == 0
          ? std::nullopt
          : std::optional(LastStep{.result = result_of(numbers), .best_loss = run.best_loss, .plateau = run.plateau}));
}

}  // namespace ddprun::trainer
