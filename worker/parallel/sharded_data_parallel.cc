#include "ddprun/worker/parallel/sharded_data_parallel.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/operation.h"
#include "ddprun/worker/parallel/call_order.h"
#include "ddprun/worker/parallel/flat_parameters.h"
#include "ddprun/worker/parallel/group_tensors.h"
#include "ddprun/worker/parallel/order_broadcast.h"
#include "ddprun/worker/parallel/own_tensors.h"
#include "ddprun/worker/parallel/shard_units.h"
#include "ddprun/worker/parallel/sharded_gradients.h"
#include "ddprun/worker/parallel/sharded_parameters.h"
#include "ddprun/worker/reducer/shards.h"

namespace ddprun {
namespace {

using NamedVariables = std::vector<std::pair<std::string, Variable>>;
using Kind = CallOrder::Kind;

// Makes all ranks equal to rank 0. Returns the parameters that are trained.
NamedVariables aligned_parameters(ProcessGroup& group, const nn::Module& model) {
  auto parameters = model.named_parameters();
  align_ranks(group, parameters, model.named_buffers());
  std::erase_if(parameters, [](const auto& each) { return !each.second.requires_grad(); });
  return parameters;
}

ShardUnits units_of(nn::Module& model, const NamedVariables& parameters, const ShardedOptions& options) {
  if (options.shard_parameters) return plan_units(model, parameters);
  return {.buckets = plan_buckets(references(parameters), options.limits), .users = {}};
}

// An identity operation that calls in_backward when the backward pass reaches it.
Variable marked(const Variable& variable, Tensor value, std::function<void()> in_backward) {
  const autograd::Operation operation("gather_parameters", {variable});
  return operation.record(std::move(value), {}, [in_backward = std::move(in_backward)](autograd::Backward& pass) {
    in_backward();
    pass.add(0, pass.dense_grad());
  });
}

bool has_tape(const Variable& variable) {
  return grad_enabled() && variable.requires_grad();
}

}  // namespace

struct ShardedDataParallel::State {
  State(nn::Module& module, ProcessGroup& group, const ShardedOptions& given)
      : model(module),
        options(given),
        mesh(group, {{"replicate", mesh_rest}, {"shard", given.shard_group > 0 ? given.shard_group : group.size()}}),
        parameters(aligned_parameters(group, module)),
        units(units_of(module, parameters, given)),
        gradients(mesh, parameters, units.buckets),
        first_order(group) {}

  void divide();
  void install_hooks();
  void begin_pass(bool is_training, bool has_samples);
  void end_pass();
  void note(CallOrder::Event event);
  void use_begins(Kind kind, std::size_t user);
  void use_ends(Kind kind, std::size_t user);
  void gradient_ready(std::size_t parameter);
  void gradient_ready_in_backward(std::size_t parameter);
  void take_place(CallOrder::Event event);
  void follow_others();

  nn::Module& model;
  const ShardedOptions options;
  const DeviceMesh mesh;
  const NamedVariables parameters;
  const ShardUnits units;
  ShardedGradients gradients;
  std::unique_ptr<FlatParameters> flat;        // set without shard_parameters
  std::unique_ptr<ShardedParameters> sharded;  // set with it
  DividedParameters divided;
  std::vector<Variable::Hook> hooks;
  CallOrder training_order, evaluation_order;
  CallOrder* order = &training_order;  // that of the pass
  OrderBroadcast first_order;          // that of the first training pass, if the order of calls matters
  bool sends_order = false;            // true if it is sent to the ranks without samples for this pass
  bool ends_with_backward = false;     // true if the pass's end is on the tape's list
  std::chrono::nanoseconds waited_for_buffers{};
};

// Gathers the parameters of a module around its calls, and around its part of the backward pass.
class ShardedDataParallel::UserHook final : public nn::CallHook {
 public:
  UserHook(State& state, std::size_t user) : state_(state), user_(user) {}

  std::vector<Variable> before(std::vector<Variable> inputs) override {
    const auto first = std::ranges::find_if(inputs, has_tape);
    if (first != inputs.end())
      *first = marked(*first, first->value(), [this] { state_.use_ends(Kind::backward_ends, user_); });
    state_.use_begins(Kind::forward_begins, user_);
    return inputs;
  }

  // The backward pass may reach any of the results first.
  std::vector<Variable> after(std::vector<Variable> results) override {
    const auto has_begun = std::make_shared<bool>(false);
    for (Variable& result : results) {
      Tensor value = is_part_of_parameter(result.value()) ? result.value().clone() : result.value();
      if (has_tape(result))
        result = marked(result, std::move(value), [this, has_begun] {
          if (!std::exchange(*has_begun, true)) state_.use_begins(Kind::backward_begins, user_);
        });
      else
        result = Variable(std::move(value));
    }
    state_.use_ends(Kind::forward_ends, user_);
    return results;
  }

 private:
  // True for rows of an embedding, for example: parameters are absent after the call.
  bool is_part_of_parameter(const Tensor& value) const {
    for (const std::size_t bucket : state_.units.users[user_].buckets)
      for (const BucketSlice& slice : state_.units.buckets[bucket].slices)
        if (state_.parameters[slice.parameter].second.value().storage() == value.storage()) return true;
    return false;
  }

  State& state_;
  const std::size_t user_;
};

// Puts parameters where this kind of division has them, and sets this rank's parts.
void ShardedDataParallel::State::divide() {
  divided = {.parameters = parameters, .buckets = units.buckets, .values = {}, .gradients = gradients.parts()};
  if (options.shard_parameters) {
    sharded = std::make_unique<ShardedParameters>(mesh, parameters, units.buckets);
    divided.values = sharded->parts();
  } else {
    flat = std::make_unique<FlatParameters>(mesh.group("shard"), parameters, units.buckets);
    divided.values = flat->parts(mesh.group("shard"));
  }
}

void ShardedDataParallel::State::install_hooks() {
  for (std::size_t p = 0; p < parameters.size(); ++p)
    hooks.push_back(parameters[p].second.on_grad_ready([this, p] { gradient_ready_in_backward(p); }));
  for (std::size_t u = 0; u < units.users.size(); ++u)
    units.users[u].module->set_call_hook(std::make_unique<UserHook>(*this, u));
}

void ShardedDataParallel::State::begin_pass(bool is_training, bool has_samples) {
  if (sharded) sharded->drop_all();  // those of a forward pass that no backward pass followed
  order = is_training ? &training_order : &evaluation_order;
  order->begin_pass();
  if (is_training && model.training() && options.broadcast_buffers) {
    const auto start = std::chrono::steady_clock::now();
    broadcast(mesh.all(), references(model.named_buffers()));
    waited_for_buffers += std::chrono::steady_clock::now() - start;
  }
  if (!is_training || !sharded || !training_order.last_pass().empty()) return;
  first_order.begin_pass(has_samples);
  sends_order = has_samples && first_order.is_needed();
}

void ShardedDataParallel::State::end_pass() {
  if (std::exchange(sends_order, false)) first_order.end_pass();
  if (order == &training_order) gradients.finish();
  if (sharded) sharded->drop_all();
  order->end_pass();
}

void ShardedDataParallel::State::note(CallOrder::Event event) {
  if (sends_order) first_order.send(event);
  order->add(event);
}

void ShardedDataParallel::State::use_begins(Kind kind, std::size_t user) {
  note({kind, user});
  for (const std::size_t bucket : units.users[user].buckets) sharded->acquire(bucket);
  const auto next = order->next_user();
  if (!next) return;
  for (const std::size_t bucket : units.users[*next].buckets) sharded->prefetch(bucket);
}

void ShardedDataParallel::State::use_ends(Kind kind, std::size_t user) {
  note({kind, user});
  const auto next = order->next_user();
  const bool stays = kind == Kind::forward_ends && order == &training_order && !options.reshard_after_forward;
  for (const std::size_t bucket : units.users[user].buckets) {
    const bool is_next = next && std::ranges::count(units.users[*next].buckets, bucket) > 0;
    sharded->release(bucket, stays || is_next);
  }
}

void ShardedDataParallel::State::gradient_ready(std::size_t parameter) {
  note({Kind::gradient_ready, parameter});
  gradients.ready(parameter);
}

void ShardedDataParallel::State::gradient_ready_in_backward(std::size_t parameter) {
  if (!std::exchange(ends_with_backward, true))
    at_end_of_backward([this] {
      end_pass();
      ends_with_backward = false;
    });
  gradient_ready(parameter);
}

void ShardedDataParallel::State::take_place(CallOrder::Event event) {
  if (event.kind == Kind::gradient_ready)
    gradient_ready(event.index);
  else if (event.kind == Kind::forward_begins || event.kind == Kind::backward_begins)
    use_begins(event.kind, event.index);
  else
    use_ends(event.kind, event.index);
}

// Follows the other ranks' pass, as the last one was, or in a first pass as they say.
void ShardedDataParallel::State::follow_others() {
  const std::vector<CallOrder::Event> events = training_order.last_pass();
  for (const auto& event : events) take_place(event);
  if (!events.empty()) return;
  if (sharded) {
    while (const auto event = first_order.receive()) take_place(*event);
  } else {
    for (std::size_t p = 0; p < parameters.size(); ++p) gradient_ready(p);
  }
}

ShardedDataParallel::ShardedDataParallel(nn::Module& model, ProcessGroup& group, const ShardedOptions& options)
    : state_(std::make_unique<State>(model, group, options)) {
  state_->divide();
  state_->install_hooks();
}

ShardedDataParallel::~ShardedDataParallel() {
  for (const auto& user : state_->units.users) user.module->set_call_hook(nullptr);
}

Variable ShardedDataParallel::forward(const Variable& input) {
  if (state_->ends_with_backward)
    throw Error(Errc::usage, "the last backward pass ended with an error: its gradients are incomplete");
  const bool is_training = grad_enabled();
  state_->begin_pass(is_training, true);
  const Variable result = state_->model(input);
  if (!is_training) state_->end_pass();
  return result;
}

void ShardedDataParallel::join_pass() {
  state_->begin_pass(true, false);
  state_->follow_others();
  state_->end_pass();
}

void ShardedDataParallel::zero_grad() {
  state_->gradients.begin_sum();
}

void ShardedDataParallel::parameters_updated() {
  if (state_->flat)
    state_->flat->gather(state_->mesh.group("shard"));
  else
    state_->sharded->parts_updated();
}

void ShardedDataParallel::sync_buffers() {
  broadcast(state_->mesh.all(), references(state_->model.named_buffers()));
}

std::vector<HookState> ShardedDataParallel::hook_state() {
  if (state_->options.broadcast_buffers) return {};
  return OwnTensors(state_->model.named_buffers()).state();
}

std::shared_ptr<void> ShardedDataParallel::evaluated_model() {
  if (state_->options.broadcast_buffers) return nullptr;
  return OwnTensors(state_->model.named_buffers()).replaced_by_first(state_->mesh.all());
}

void ShardedDataParallel::visit_parameters(const Visitor& visit) {
  ShardedParameters* sharded = state_->sharded.get();
  const auto index_of = [this](const Variable& parameter) {
    const auto found =
        std::ranges::find_if(state_->parameters, [&](const auto& each) { return each.second.is(parameter); });
    return static_cast<std::size_t>(found - state_->parameters.begin());
  };
  if (sharded) sharded->drop_all();
  for (const auto& [name, parameter] : state_->model.named_parameters()) {
    const std::size_t index = index_of(parameter);
    const bool is_absent = sharded && index < state_->parameters.size();
    if (is_absent) sharded->acquire(sharded->bucket_of(index));
    visit(name, parameter.value());
    if (is_absent) sharded->release(sharded->bucket_of(index), false);
  }
}

void ShardedDataParallel::collect_parameters() {
  if (!state_->sharded) return;
  state_->sharded->drop_all();
  state_->sharded->collect();
}

void ShardedDataParallel::drop_whole_parameters() {
  if (state_->sharded) state_->sharded->drop_all();
}

void ShardedDataParallel::distribute_model() {
  NamedVariables whole = state_->model.named_parameters();
  if (state_->sharded) {
    state_->sharded->distribute();
    std::erase_if(whole, [](const auto& each) { return each.second.requires_grad(); });
  }
  broadcast(state_->mesh.all(), references(whole));
  for (const auto& [name, parameter] : whole) parameter.value().storage()->bump_version();
  sync_buffers();
}

ModelPeaks ShardedDataParallel::take_peaks() {
  State& state = *state_;
  ModelPeaks peaks{.parameters = state.sharded ? state.sharded->peak_bytes() : 0,
                   .gradients = state.gradients.peak_bytes()};
  state.gradients.reset_peak();
  if (state.sharded) state.sharded->reset_peak();
  return peaks;
}

std::chrono::nanoseconds ShardedDataParallel::waited() const {
  return state_->gradients.waited() + state_->waited_for_buffers +
         (state_->sharded ? state_->sharded->waited() : std::chrono::nanoseconds{});
}

std::chrono::nanoseconds ShardedDataParallel::starting() const {
  return state_->gradients.starting();
}

void ShardedDataParallel::record_transfers(std::vector<Transfer>* into) {
  state_->gradients.record_transfers(into);
}

const DividedParameters* ShardedDataParallel::divided() const {
  return &state_->divided;
}

ProcessGroup& ShardedDataParallel::shard_group() const {
  return state_->mesh.group("shard");
}

ProcessGroup* ShardedDataParallel::replica_group() const {
  return state_->mesh.size("replicate") > 1 ? &state_->mesh.group("replicate") : nullptr;
}

}  // namespace ddprun
