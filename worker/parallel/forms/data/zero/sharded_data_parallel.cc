#include "worker/parallel/forms/data/zero/sharded_data_parallel.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "common/error.h"
#include "worker/parallel/forms/data/call_order.h"
#include "worker/parallel/forms/data/order_broadcast.h"
#include "worker/parallel/forms/data/own_tensors.h"
#include "worker/parallel/forms/data/use_hook.h"
#include "worker/parallel/forms/data/zero/bucket_ranks.h"
#include "worker/parallel/forms/data/zero/shard_meshes.h"
#include "worker/parallel/forms/data/zero/shard_units.h"
#include "worker/parallel/forms/data/zero/sharded_gradients.h"
#include "worker/parallel/forms/data/zero/sharded_parameters.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/sharding/flat_parameters.h"
#include "worker/reducer/shards.h"

namespace ddprun {
namespace {

using NamedVariables = std::vector<std::pair<std::string, Variable>>;
using NamedBuffers = std::vector<std::pair<std::string, Tensor>>;
using Kind = CallOrder::Kind;

// Returns those of a model's parameters or buffers that the ranks have in common.
template <class Named>
Named common(Named all, const ShardedOptions& options) {
  return common_tensors(std::move(all), options.stages, options.ignored_parameters);
}

NamedVariables trained_parameters(const nn::Module& model, const ShardedOptions& options) {
  auto parameters = common(model.named_parameters(), options);
  std::erase_if(parameters, [](const auto& each) { return !each.second.requires_grad(); });
  return parameters;
}

bool is_sliced(const ShardedOptions& options, const std::string& parameter) {
  return std::ranges::count(options.sliced.names, parameter) > 0;
}

// Returns those of the parameters that are sliced, or the others.
NamedVariables only(bool sliced, NamedVariables parameters, const ShardedOptions& options) {
  std::erase_if(parameters, [&](const auto& each) { return is_sliced(options, each.first) != sliced; });
  return parameters;
}

// Makes the ranks that have the same parameters equal to the first of them. Returns the parameters that are trained.
NamedVariables aligned_parameters(ProcessGroup& group, const nn::Module& model, const ShardedOptions& options) {
  check_ignored(model, options.ignored_parameters);
  const auto all = common(model.named_parameters(), options);
  align_ranks(group, only(false, all, options), common(model.named_buffers(), options));
  if (options.sliced.replicas) align_ranks(*options.sliced.replicas, only(true, all, options), {});
  return trained_parameters(model, options);
}

ShardUnits units_of(nn::Module& model, const NamedVariables& parameters, const ShardedOptions& options) {
  const auto& sliced = options.sliced.names;
  if (options.shard_parameters) return plan_units(model, parameters, options.stages, sliced);
  return {.buckets = plan_buckets_of_stages(parameters, options.stages, options.limits, sliced), .users = {}};
}

std::vector<BucketRanks> ranks_of(const std::vector<Bucket>& buckets, const NamedVariables& parameters,
                                  const ShardedOptions& options, const ShardMeshes& meshes) {
  std::vector<BucketRanks> all;
  for (const Bucket& bucket : buckets)
    all.push_back(meshes.ranks(is_sliced(options, parameters[bucket.slices.front().parameter].first)));
  return all;
}

}  // namespace

GradientBuckets gradient_buckets(nn::Module& model, const ShardedOptions& options) {
  GradientBuckets result{.parameters = trained_parameters(model, options), .buckets = {}};
  result.buckets = units_of(model, result.parameters, options).buckets;
  return result;
}

struct ShardedDataParallel::State final : UseListener {
  State(nn::Module& module, ProcessGroup& group, const ShardedOptions& given)
      : model(module),
        options(given),
        meshes(group, given.shard_group, given.sliced.replicas),
        parameters(aligned_parameters(group, module, given)),
        units(units_of(module, parameters, given)),
        buckets_of(buckets_by_stage(units.buckets, parameters, given.stages)),
        ranks(ranks_of(units.buckets, parameters, given, meshes)),
        gradients(
            ranks, parameters, units.buckets,
            {.sent_as = given.gradients_as, .may_leave_out = given.find_unused_parameters ? &meshes.all() : nullptr}),
        first_order(group) {}

  void divide();
  void install_hooks();
  NamedBuffers buffers() const { return common(model.named_buffers(), options); }
  OwnTensors own_tensors() const {
    return {model, options.stages, options.ignored_parameters, options.broadcast_buffers};
  }
  void begin_step(bool is_training);
  void begin_pass(const StagePass& next);
  void end_pass();
  bool completes_gradients();
  bool keeps_units() const;
  void note(CallOrder::Event event);
  void use_begins(Kind kind, std::size_t user) override;
  void use_ends(Kind kind, std::size_t user) override;
  bool is_in_parameters(std::size_t user, const Tensor& value) const override;
  void gradient_ready(std::size_t parameter);
  void gradient_ready_in_backward(std::size_t parameter);
  void take_place(CallOrder::Event event);
  void follow_others();

  nn::Module& model;
  const ShardedOptions options;
  const ShardMeshes meshes;
  const NamedVariables parameters;
  const ShardUnits units;
  const std::map<int, std::vector<std::size_t>> buckets_of;  // by stage
  const std::vector<BucketRanks> ranks;                      // by bucket
  ShardedGradients gradients;
  std::unique_ptr<FlatParameters> flat;        // set without shard_parameters
  std::unique_ptr<ShardedParameters> sharded;  // set with it
  ShardedBuckets sharded_buckets;
  std::vector<Variable::Hook> hooks;
  StagePass pass;
  std::map<std::pair<int, PassKind>, CallOrder> orders;
  CallOrder* order = nullptr;       // that of the pass
  OrderBroadcast first_order;       // that of a first training pass, if the order of calls matters
  bool sends_order = false;         // true if it is sent to the ranks without samples for this pass
  bool in_stage = false;            // true in a pass through a stage
  bool ends_with_backward = false;  // true if the pass's end is on the tape's list
  std::map<int, int> incomplete;    // by stage, the backward passes whose second part is to come
  std::chrono::nanoseconds waited_for_buffers{};
};

// Puts parameters where this kind of division has them, and sets this rank's parts.
void ShardedDataParallel::State::divide() {
  std::vector<ProcessGroup*> groups;
  for (const BucketRanks& each : ranks) groups.push_back(each.shard);
  sharded_buckets = {.parameters = parameters,
                     .buckets = units.buckets,
                     .groups = groups,
                     .values = {},
                     .gradients = gradients.parts()};
  if (options.find_unused_parameters)
    sharded_buckets.used = [this](std::size_t p) {
      return gradients.used(p) || std::ranges::count(options.stages.shared, parameters[p].first) > 0;
    };
  if (options.shard_parameters) {
    sharded = std::make_unique<ShardedParameters>(ranks, parameters, units.buckets);
    sharded_buckets.values = sharded->parts();
  } else {
    flat = std::make_unique<FlatParameters>(groups, parameters, units.buckets);
    sharded_buckets.values = flat->parts();
  }
}

void ShardedDataParallel::State::install_hooks() {
  for (std::size_t p = 0; p < parameters.size(); ++p)
    hooks.push_back(parameters[p].second.on_grad_ready([this, p] { gradient_ready_in_backward(p); }));
  for (std::size_t u = 0; u < units.users.size(); ++u) units.users[u].module->set_call_hook(make_use_hook(*this, u));
}

void ShardedDataParallel::State::begin_step(bool is_training) {
  if (ends_with_backward || in_stage)
    throw Error(Errc::usage, "the last backward pass ended with an error: its gradients are incomplete");
  if (sharded) sharded->drop_all();  // those of a forward pass that no backward pass followed
  if (!is_training || !model.training() || !options.broadcast_buffers) return;
  const auto start = std::chrono::steady_clock::now();
  broadcast(meshes.all(), references(buffers()));
  waited_for_buffers += std::chrono::steady_clock::now() - start;
}

void ShardedDataParallel::State::begin_pass(const StagePass& next) {
  pass = next;
  order = &orders[{pass.stage, pass.kind}];
  order->begin_pass();
  if (pass.kind == PassKind::evaluation) return;
  gradients.begin_pass(buckets_of.at(pass.stage));
  // A whole pass without a record reduces all gradients.
  if (order->is_known() || (pass.kind == PassKind::whole && !sharded)) return;
  first_order.begin_pass(pass.has_samples);
  sends_order = pass.has_samples && first_order.is_needed();
}

void ShardedDataParallel::State::end_pass() {
  if (std::exchange(sends_order, false)) first_order.end_pass();
  if (completes_gradients()) gradients.finish();
  if (sharded && keeps_units())
    sharded->keep_all();
  else if (sharded)
    sharded->drop_all();
  order->end_pass();
}

// Returns whether the pass has to reach all parameters of its stage, as one of the two parts of a backward pass has.
bool ShardedDataParallel::State::completes_gradients() {
  if (pass.kind == PassKind::backward_input) {
    if (gradients.has_begun()) return true;
    ++incomplete[pass.stage];
    return false;
  }
  if (pass.kind == PassKind::backward_weight) return incomplete[pass.stage] > 0 && incomplete[pass.stage]-- > 0;
  return pass.kind == PassKind::whole || pass.kind == PassKind::backward;
}

// Returns whether units stay until the end of the step.
bool ShardedDataParallel::State::keeps_units() const {
  return !options.reshard_after_forward && pass.kind != PassKind::whole && pass.kind != PassKind::evaluation;
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
  const bool is_forward = kind == Kind::forward_ends && pass.kind == PassKind::whole;
  const bool stays = keeps_units() || (is_forward && !options.reshard_after_forward);
  for (const std::size_t bucket : units.users[user].buckets) {
    const bool is_next = next && std::ranges::count(units.users[*next].buckets, bucket) > 0;
    sharded->release(bucket, stays || is_next);
  }
}

bool ShardedDataParallel::State::is_in_parameters(std::size_t user, const Tensor& value) const {
  for (const std::size_t bucket : units.users[user].buckets)
    for (const BucketSlice& slice : units.buckets[bucket].slices)
      if (parameters[slice.parameter].second.value().storage() == value.storage()) return true;
  return false;
}

void ShardedDataParallel::State::gradient_ready(std::size_t parameter) {
  note({Kind::gradient_ready, parameter});
  gradients.ready(parameter, pass.has_samples);
}

void ShardedDataParallel::State::gradient_ready_in_backward(std::size_t parameter) {
  if (!in_stage && !std::exchange(ends_with_backward, true))
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
  const std::vector<CallOrder::Event> events = order->last_pass();
  if (order->is_known()) {
    for (const auto& event : events) take_place(event);
  } else if (pass.kind == PassKind::whole && !sharded) {
    for (std::size_t p = 0; p < parameters.size(); ++p) gradient_ready(p);
  } else {
    while (const auto event = first_order.receive()) take_place(*event);
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
  const bool is_training = grad_enabled();
  state_->begin_step(is_training);
  state_->begin_pass({.kind = is_training ? PassKind::whole : PassKind::evaluation});
  const Variable result = state_->model(input);
  if (!is_training) state_->end_pass();
  return result;
}

void ShardedDataParallel::prepare_forward() {
  state_->begin_step(grad_enabled());
}

void ShardedDataParallel::join_pass() {
  state_->begin_step(true);
  state_->begin_pass({.has_samples = false});
  state_->follow_others();
  state_->end_pass();
}

void ShardedDataParallel::join_backward() {
  if (state_->sharded) state_->sharded->drop_all();
}

void ShardedDataParallel::run_pass(const StagePass& pass, const std::function<void()>& compute) {
  state_->in_stage = true;  // stays if the pass throws
  state_->begin_pass(pass);
  if (pass.has_samples)
    compute();
  else
    state_->follow_others();
  state_->end_pass();
  state_->in_stage = false;
}

void ShardedDataParallel::zero_grad() {
  state_->gradients.begin_sum();
  const auto own = own_parameters();
  for (auto& [name, parameter] : state_->model.named_parameters())
    if (std::ranges::count(own, name) > 0) Variable(parameter).zero_grad();
}

std::vector<std::string> ShardedDataParallel::own_parameters() const {
  return ignored_parameters_of(state_->model, state_->options.ignored_parameters);
}

void ShardedDataParallel::parameters_updated() {
  if (state_->flat)
    state_->flat->gather();
  else
    state_->sharded->parts_updated();
}

void ShardedDataParallel::sync_buffers() {
  broadcast(state_->meshes.all(), references(state_->buffers()));
}

std::vector<HookState> ShardedDataParallel::hook_state() {
  return state_->own_tensors().state();
}

std::shared_ptr<void> ShardedDataParallel::evaluated_model() {
  return state_->own_tensors().replaced_by_first(state_->meshes.all());
}

void ShardedDataParallel::visit_parameters(const Visitor& visit) {
  ShardedParameters* sharded = state_->sharded.get();
  const auto index_of = [this](const Variable& parameter) {
    const auto found =
        std::ranges::find_if(state_->parameters, [&](const auto& each) { return each.second.is(parameter); });
    return static_cast<std::size_t>(found - state_->parameters.begin());
  };
  if (sharded) sharded->drop_all();
  const auto evaluated = own_parameters().empty() ? nullptr : evaluated_model();
  for (const auto& [name, parameter] : state_->options.stages.present(state_->model.named_parameters())) {
    const std::size_t index = index_of(parameter);
    const bool is_absent = sharded && index < state_->parameters.size();
    if (is_absent) sharded->acquire(sharded->bucket_of(index));
    visit(name, parameter.value());
    if (is_absent) sharded->release(sharded->bucket_of(index), false);
  }
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

bool ShardedDataParallel::has_whole_parameters() const {
  return !state_->sharded;
}

const ShardedBuckets* ShardedDataParallel::sharded_buckets() const {
  return &state_->sharded_buckets;
}

ProcessGroup& ShardedDataParallel::shard_group() const {
  return state_->meshes.mesh().group("shard");
}

ProcessGroup& ShardedDataParallel::shard_group_of_slices() const {
  return *state_->meshes.ranks(state_->options.sliced.replicas != nullptr).shard;
}

ProcessGroup* ShardedDataParallel::replica_group() const {
  const DeviceMesh& mesh = state_->meshes.mesh();
  return mesh.size("replicate") > 1 ? &mesh.group("replicate") : nullptr;
}

std::uint64_t ShardedDataParallel::bytes_sent() const {
  return state_->meshes.bytes_sent();
}

}  // namespace ddprun
