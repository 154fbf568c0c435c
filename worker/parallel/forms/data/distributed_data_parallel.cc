#include "worker/parallel/forms/data/distributed_data_parallel.h"

#include <algorithm>
#include <ranges>
#include <utility>
#include <vector>

#include "common/error.h"
#include "worker/parallel/forms/data/own_tensors.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/owned_buffer.h"
#include "worker/parallel/sharding/flat_parameters.h"
#include "worker/reducer/hooks/reduce_scatter_hook.h"
#include "worker/reducer/shards.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::count(names, name) > 0;
}

// Returns those of a model's parameters or buffers that the ranks of the group have in common.
template <class Named>
Named common(Named all, const DdpOptions& options) {
  return common_tensors(std::move(all), options.stages, options.ignored_parameters);
}

std::vector<std::pair<std::string, Variable>> trainable(const nn::Module& model, const DdpOptions& options) {
  auto parameters = common(model.named_parameters(), options);
  std::erase_if(parameters, [](const auto& each) { return !each.second.requires_grad(); });
  return parameters;
}

OwnTensors own_tensors(const nn::Module& model, const DdpOptions& options) {
  return OwnTensors(model, options.stages, options.ignored_parameters, options.broadcast_buffers);
}

std::size_t index_of(const char* option, const std::string& name,
                     const std::vector<std::pair<std::string, Variable>>& parameters) {
  const auto found = std::ranges::find(parameters, name, [](const auto& each) { return each.first; });
  if (found == parameters.end())
    throw make_error(Errc::usage, "{}: {} is no parameter whose gradients are averaged", option, name);
  return static_cast<std::size_t>(found - parameters.begin());
}

ReducerOptions reducer_options(const DdpOptions& options,
                               const std::vector<std::pair<std::string, Variable>>& parameters) {
  ReducerOptions result{.limits = options.limits,
                        .find_unused_parameters = options.find_unused_parameters,
                        .static_graph = options.static_graph};
  if (Tensor number = options.cancelled; number.defined()) result.cancelled = static_cast<float*>(number.raw());
  const auto is_here = [&](const std::string& name) { return !contains(options.stages.absent, name); };
  for (const auto& name : options.delay_all_reduce_named_params | std::views::filter(is_here))
    result.delayed.push_back(index_of("delay_all_reduce_named_params", name, parameters));
  if (options.shard_gradients)
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (contains(options.stages.shared, parameters[p].first)) result.alone.push_back(p);
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (contains(options.apart, parameters[p].first)) result.apart.push_back(p);
  if (const auto& name = options.param_to_hook_all_reduce; !name.empty() && is_here(name))
    result.delay_until = index_of("param_to_hook_all_reduce", name, parameters);
  return result;
}

ReducerOptions with_memory_of(ProcessGroup& group, ReducerOptions options) {
  options.allocate = [&group](std::int32_t device, std::size_t bytes) {
    return owned_buffer(group, device, bytes, MemoryOwner::gradients);
  };
  return options;
}

}  // namespace

GradientBuckets gradient_buckets(const nn::Module& model, const DdpOptions& options) {
  GradientBuckets result{.parameters = trainable(model, options), .buckets = {}};
  const ReducerOptions reducer = reducer_options(options, result.parameters);
  result.buckets =
      plan_buckets(references(result.parameters), reducer.limits, reducer.delayed, reducer.alone, reducer.apart);
  return result;
}

struct DistributedDataParallel::State final : DdpModel {
  State(nn::Module& module, ProcessGroup& process_group, const DdpOptions& ddp_options)
      : model(module),
        group(process_group),
        options(ddp_options),
        parameters(trainable(module, options)),
        passes(group, *this, references(parameters), with_memory_of(group, reducer_options(options, parameters)),
               options.broadcast_buffers) {}

  void shard();
  // One that several stages have counts as used, since the others may have used it.
  bool used(std::size_t p) { return passes.reducer().used(p) || contains(options.stages.shared, parameters[p].first); }
  bool may_leave_out() const { return options.find_unused_parameters || options.static_graph; }
  void install_hooks();

  bool trains() const override { return model.training() && grad_enabled(); }
  std::vector<ParameterRef> common_parameters() const override {
    return references(common(model.named_parameters(), options));
  }
  std::vector<ParameterRef> common_buffers() const override {
    return references(common(model.named_buffers(), options));
  }
  void at_end_of_backward(std::function<void()> action) override { ddprun::at_end_of_backward(std::move(action)); }
  void zero_grad() override { model.zero_grad(); }
  void settle_gradients() override {
    for (const auto& [name, parameter] : parameters) parameter.grad();  // clears it if that is still to be done
  }
  void define_gradients() override;
  void scale_gradients(double factor) override;

  nn::Module& model;
  ProcessGroup& group;
  const DdpOptions options;
  std::vector<std::pair<std::string, Variable>> parameters;
  DdpPasses passes;
  std::unique_ptr<FlatParameters> flat;  // set with shard_gradients
  ShardedBuckets sharded;
  std::vector<Variable::Hook> hooks;
};

void DistributedDataParallel::State::shard() {
  Reducer& reducer = passes.reducer();
  const std::vector groups(reducer.buckets().size(), &group);
  flat = std::make_unique<FlatParameters>(groups, parameters, reducer.buckets());
  sharded = {.parameters = parameters,
             .buckets = reducer.buckets(),
             .groups = groups,
             .values = flat->parts(),
             .gradients = {}};
  if (may_leave_out()) sharded.used = [this](std::size_t p) { return used(p); };
  for (const Bucket& bucket : sharded.buckets) {
    const Shard own = shard_of(bucket.count, group.rank(), group.size());
    const auto memory = reducer.gradient_memory(bucket.slices.front().parameter);  // the start of the bucket
    const std::shared_ptr<void> place(memory,
                                      static_cast<std::byte*>(memory.get()) + own.begin * size_of(bucket.dtype));
    sharded.gradients.push_back(
        Tensor::wrap(place.get(), {static_cast<std::int64_t>(own.count())}, bucket.dtype, place));
  }
  reducer.set_hook(make_reduce_scatter_hook(group));
}

void DistributedDataParallel::State::define_gradients() {
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (used(p)) parameters[p].second.define_grad();
}

void DistributedDataParallel::State::scale_gradients(double factor) {
  for (auto& [name, parameter] : parameters) {
    Tensor gradient = parameter.grad();
    if (gradient.defined()) gradient.copy_from(kernels::scale(gradient, factor));
  }
}

void DistributedDataParallel::State::install_hooks() {
  const auto kind = may_leave_out() ? Variable::GradStorage::lazy : Variable::GradStorage::eager;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto& variable = parameters[p].second;
    auto memory = passes.reducer().gradient_memory(p);
    void* data = memory.get();
    variable.set_grad_storage(
        Tensor::wrap(data, variable.shape(), variable.dtype(), std::move(memory), variable.device()), kind);
    hooks.push_back(variable.on_grad_ready([this, p] { passes.gradient_ready(p); }));
  }
}

DistributedDataParallel::DistributedDataParallel(nn::Module& model, ProcessGroup& group, const DdpOptions& options) {
  check_ignored(model, options.ignored_parameters);
  if (options.init_sync)
    align_ranks(group, common(model.named_parameters(), options), common(model.named_buffers(), options));
  state_ = std::make_unique<State>(model, group, options);
  if (options.shard_gradients) state_->shard();
  state_->install_hooks();
}

DistributedDataParallel::~DistributedDataParallel() = default;

nn::Module& DistributedDataParallel::module() {
  return state_->model;
}

void DistributedDataParallel::prepare_forward() {
  state_->passes.begin_forward();
}

Variable DistributedDataParallel::forward(const Variable& input) {
  prepare_forward();
  return state_->model(input);
}

std::vector<Variable> DistributedDataParallel::forward(const std::vector<Variable>& inputs) {
  prepare_forward();
  return state_->model(inputs);
}

void DistributedDataParallel::join_pass() {
  state_->passes.join_pass();
}

void DistributedDataParallel::join_backward() {
  state_->passes.join_backward();
}

void DistributedDataParallel::join(const std::function<void()>& body, const JoinOptions& options) {
  if (state_->flat) throw Error(Errc::usage, "join() does not go with shard_gradients");
  state_->passes.join(body, options);
}

DistributedDataParallel::NoSync DistributedDataParallel::no_sync() {
  return NoSync(state_->passes);
}

std::shared_ptr<void> DistributedDataParallel::hold_reduction() {
  return std::make_shared<NoSync>(state_->passes);
}

void DistributedDataParallel::register_comm_hook(std::unique_ptr<CommHook> hook) {
  state_->passes.reducer().set_hook(std::move(hook));
}

void DistributedDataParallel::register_comm_hook(std::function<WorkPtr(const GradBucket&)> hook) {
  register_comm_hook(make_comm_hook(std::move(hook)));
}

CommHook& DistributedDataParallel::comm_hook() {
  return state_->passes.reducer().hook();
}

std::vector<HookState> DistributedDataParallel::hook_state() {
  auto all = comm_hook().state();
  for (auto& own : own_tensors(state_->model, state_->options).state()) all.push_back(std::move(own));
  return all;
}

std::vector<std::string> DistributedDataParallel::own_parameters() const {
  return ignored_parameters_of(state_->model, state_->options.ignored_parameters);
}

std::shared_ptr<void> DistributedDataParallel::evaluated_model() {
  return own_tensors(state_->model, state_->options).replaced_by_first(state_->group);
}

const ShardedBuckets* DistributedDataParallel::sharded_buckets() const {
  return state_->flat ? &state_->sharded : nullptr;
}

ProcessGroup& DistributedDataParallel::shard_group() const {
  return state_->group;
}

void DistributedDataParallel::zero_grad() {
  state_->model.zero_grad();
}

void DistributedDataParallel::parameters_updated() {
  if (state_->flat) state_->flat->gather();
}

void DistributedDataParallel::visit_parameters(const Visitor& visit) {
  const auto evaluated = own_parameters().empty() ? nullptr : evaluated_model();
  for (const auto& [name, parameter] : state_->options.stages.present(state_->model.named_parameters()))
    visit(name, parameter.value());
}

void DistributedDataParallel::sync_buffers() {
  state_->passes.sync_buffers();
}

std::chrono::nanoseconds DistributedDataParallel::waited() const {
  return state_->passes.waited();
}

std::chrono::nanoseconds DistributedDataParallel::starting() const {
  return state_->passes.reducer().starting();
}

void DistributedDataParallel::record_transfers(std::vector<Transfer>* into) {
  state_->passes.reducer().record_transfers(into);
}

}  // namespace ddprun
