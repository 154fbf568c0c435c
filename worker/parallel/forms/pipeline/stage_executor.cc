#include "worker/parallel/forms/pipeline/stage_executor.h"

#include <algorithm>

#include "common/error.h"
#include "worker/autograd/function.h"

namespace ddprun::pipeline {
namespace {

// Returns the input as an operation's result: autocast takes leaves for weights, and would keep a copy.
Variable as_result(const Variable& input) {
  const autograd::Function operation("receive", {input});
  return operation.record(input.value(), {}, [](autograd::Backward& pass) { pass.add(0, pass.dense_grad()); });
}

Tensor one(const Variable& scalar) {
  return Tensor::full(scalar.shape(), 1, scalar.dtype(), scalar.device());
}

}  // namespace

StageExecutor::StageExecutor(Schedule schedule, int rank, std::vector<Stage> stages, Channel& channel)
    : schedule_(std::move(schedule)), rank_(rank), stages_(std::move(stages)), channel_(channel) {}

const Stage& StageExecutor::stage(int number) const {
  return *std::ranges::find(stages_, number, &Stage::number);
}

void StageExecutor::train(const StepFunctions& step) {
  auto actions = schedule_.actions.at(static_cast<std::size_t>(rank_));
  const int joined = std::max(step.micro_batches, step.most_micro_batches);
  std::erase_if(actions, [&](const Action& action) { return action.micro_batch >= joined; });
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (i + 1 < actions.size() && actions[i + 1].micro_batch < step.micro_batches) expect(actions[i + 1], step);
    run(actions[i], step);
  }
  channel_.finish();
}

void StageExecutor::evaluate(int micro_batch, const StepFunctions& step) {
  const NoGradScope no_grad;
  for (const Stage& own : stages_) {
    run({ActionKind::forward, own.number, micro_batch}, step);
    passes_.clear();
  }
}

void StageExecutor::run(const Action& action, const StepFunctions& step) {
  try {
    if (!step.around) return compute(action, step);
    step.around(action, [&] {
      if (action.micro_batch < step.micro_batches) compute(action, step);
    });
  } catch (const Error& e) {
    throw make_error(e.code(), "pipeline rank {}, {}: {}", rank_, to_string(action), e.what());
  }
}

void StageExecutor::compute(const Action& action, const StepFunctions& step) {
  switch (action.kind) {
    case ActionKind::forward:
      return forward(action, step);
    case ActionKind::backward:
      return backward(action, step);
    case ActionKind::backward_input:
      return backward_input(action, step);
    case ActionKind::backward_weight:
      return backward_weight(action);
  }
}

void StageExecutor::forward(const Action& action, const StepFunctions& step) {
  const auto scope = step.scope ? step.scope(action.micro_batch) : nullptr;
  Pass pass;
  Variable value;
  if (action.stage == 0) {
    value = step.input(action.micro_batch);
  } else {
    const Tensor received = take(action, step);
    pass.input = Variable(received, grad_enabled() && is_floating(received.dtype()));
    value = as_result(pass.input);
  }
  pass.result = stage(action.stage)(value);
  if (is_last(action.stage)) {
    pass.result = step.loss(action.micro_batch, pass.result);
  } else {
    if (!grad_enabled()) channel_.finish();  // a rank that is faster is one micro-batch ahead, not more
    hand_over(action.stage + 1, action, false, pass.result.value(), step);
  }
  passes_[{action.stage, action.micro_batch}] = std::move(pass);
}

void StageExecutor::backward(const Action& action, const StepFunctions& step) {
  const auto found = passes_.find({action.stage, action.micro_batch});
  const Tensor gradient = is_last(action.stage) ? one(found->second.result) : take(action, step);
  const Pass pass = std::move(found->second);
  passes_.erase(found);
  if (pass.result.requires_grad()) pass.result.backward(gradient);
  hand_over_gradient(action, pass.input, step);
}

void StageExecutor::backward_input(const Action& action, const StepFunctions& step) {
  Pass& pass = passes_.at({action.stage, action.micro_batch});
  // Nobody waits for the gradient of the first stage's input.
  if (!pass.input.requires_grad()) return backward(action, step);
  const Tensor gradient = is_last(action.stage) ? one(pass.result) : take(action, step);
  pass.divided.emplace(std::vector<autograd::Root>{{autograd::Access::edge(pass.result), gradient}}, pass.input);
  pass.result = Variable();
  hand_over_gradient(action, pass.input, step);
}

void StageExecutor::backward_weight(const Action& action) {
  const auto found = passes_.find({action.stage, action.micro_batch});
  if (found == passes_.end()) return;
  found->second.divided->finish();
  passes_.erase(found);
}

// Returns the rank and the message of an action's input; none if it is from this rank, or from outside.
std::optional<std::pair<int, Message>> StageExecutor::awaited(const Action& action, const StepFunctions& step) const {
  if (action.kind == ActionKind::backward_weight) return std::nullopt;
  const bool is_gradient = action.kind != ActionKind::forward;
  const int source = is_gradient ? action.stage + 1 : action.stage - 1;
  if (source < 0 || source == schedule_.stages || schedule_.rank_of(source) == rank_) return std::nullopt;
  Message message{.stage = action.stage,
                  .micro_batch = action.micro_batch,
                  .is_gradient = is_gradient,
                  .samples = step.samples(action.micro_batch)};
  if (is_gradient) {
    const auto pass = passes_.find({action.stage, action.micro_batch});
    if (pass == passes_.end()) return std::nullopt;  // its forward pass comes first
    message.like = pass->second.result.value();
  }
  return std::pair{schedule_.rank_of(source), message};
}

void StageExecutor::expect(const Action& action, const StepFunctions& step) {
  if (const auto from = awaited(action, step)) channel_.expect(from->first, from->second);
}

Tensor StageExecutor::take(const Action& action, const StepFunctions& step) {
  if (const auto from = awaited(action, step)) return channel_.receive(from->first, from->second);
  return std::move(
      own_messages_.extract({{action.stage, action.micro_batch}, action.kind != ActionKind::forward}).mapped());
}

void StageExecutor::hand_over(int stage, const Action& action, bool is_gradient, Tensor value,
                              const StepFunctions& step) {
  const int rank = schedule_.rank_of(stage);
  if (rank == rank_) {
    own_messages_[{{stage, action.micro_batch}, is_gradient}] = std::move(value);
    return;
  }
  channel_.send(rank,
                {.stage = stage,
                 .micro_batch = action.micro_batch,
                 .is_gradient = is_gradient,
                 .samples = step.samples(action.micro_batch)},
                value);
}

void StageExecutor::hand_over_gradient(const Action& action, const Variable& input, const StepFunctions& step) {
  if (!input.requires_grad()) return;
  const Tensor& gradient = input.grad();
  hand_over(action.stage - 1, action, true, gradient.defined() ? gradient : Tensor::zeros_like(input.value()), step);
}

}  // namespace ddprun::pipeline
