#include "worker/parallel/distributed_data_parallel.h"

#include <algorithm>
#include <ranges>
#include <utility>
#include <vector>

#include "common/error.h"
#include "worker/comm/collectives.h"
#include "worker/parallel/flat_parameters.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/own_tensors.h"
#include "worker/parallel/owned_buffer.h"
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
  std::erase_if(all, [&](const auto& each) { return contains(options.ignored_parameters, each.first); });
  return options.stages.present(std::move(all));
}

std::vector<std::pair<std::string, Variable>> trainable(const nn::Module& model, const DdpOptions& options) {
  auto parameters = common(model.named_parameters(), options);
  std::erase_if(parameters, [](const auto& each) { return !each.second.requires_grad(); });
  return parameters;
}

OwnTensors own_tensors(const nn::Module& model, const DdpOptions& options) {
  OwnTensors::Named all;
  for (const auto& [name, parameter] : options.stages.present(model.named_parameters()))
    if (contains(options.ignored_parameters, name)) all.emplace_back(name, parameter.value());
  for (const auto& [name, buffer] : options.stages.present(model.named_buffers()))
    if (!options.broadcast_buffers || contains(options.ignored_parameters, name)) all.emplace_back(name, buffer);
  return OwnTensors(std::move(all));
}

void check_ignored(const nn::Module& model, const DdpOptions& options) {
  for (const auto& name : options.ignored_parameters) {
    const auto is_it = [&](const auto& each) { return each.first == name; };
    if (!std::ranges::any_of(model.named_parameters(), is_it) && !std::ranges::any_of(model.named_buffers(), is_it))
      throw make_error(Errc::usage, "ignored_parameters: the model has no parameter or buffer {}", name);
  }
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
  const auto is_here = [&](const std::string& name) { return !contains(options.stages.absent, name); };
  for (const auto& name : options.delay_all_reduce_named_params | std::views::filter(is_here))
    result.delayed.push_back(index_of("delay_all_reduce_named_params", name, parameters));
  if (options.shard_gradients)
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (contains(options.stages.shared, parameters[p].first)) result.alone.push_back(p);
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
  result.buckets = plan_buckets(references(result.parameters), reducer.limits, reducer.delayed, reducer.alone);
  return result;
}

struct DistributedDataParallel::State {
  State(nn::Module& module, ProcessGroup& process_group, const DdpOptions& ddp_options)
      : model(module),
        group(process_group),
        options(ddp_options),
        parameters(trainable(module, options)),
        reducer(process_group, references(parameters),
                with_memory_of(process_group, reducer_options(options, parameters))) {}
  ~State() {
    try {
      await_buffers();
    } catch (const Error&) {
      // The group has failed; its other operations report that.
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void shard();
  bool may_leave_out() const { return options.find_unused_parameters || options.static_graph; }
  void install_hooks();
  void gradient_ready(std::size_t parameter);
  void define_gradients();
  // Waits for the buffers that other ranks sent for this pass.
  void await_buffers() {
    if (const auto work = std::exchange(buffers, nullptr)) work->wait();
  }

  nn::Module& model;
  ProcessGroup& group;
  const DdpOptions options;
  std::vector<std::pair<std::string, Variable>> parameters;
  Reducer reducer;
  std::unique_ptr<FlatParameters> flat;  // set with shard_gradients
  DividedParameters divided;
  int no_sync_depth = 0;
  std::vector<Variable::Hook> hooks;
  WorkPtr buffers;  // their broadcast, while it may be in progress
  std::chrono::nanoseconds waited_for_buffers{};
  bool in_pass = false;     // true if a reduced backward pass has begun and not ended
  bool begins_step = true;  // true if the next training pass follows one that was reduced

  // Used within join().
  std::vector<int> announce(bool has_inputs);
  void scale_averages();
  const JoinOptions* join_options = nullptr;
  std::vector<int> active;  // the ranks that have inputs in this pass
};

void DistributedDataParallel::State::shard() {
  if (may_leave_out())
    throw Error(Errc::usage, "shard_gradients does not go with find_unused_parameters or static_graph");
  const std::vector groups(reducer.buckets().size(), &group);
  flat = std::make_unique<FlatParameters>(groups, parameters, reducer.buckets());
  divided = {.parameters = parameters,
             .buckets = reducer.buckets(),
             .groups = groups,
             .values = flat->parts(),
             .gradients = {}};
  for (const Bucket& bucket : divided.buckets) {
    const Shard own = shard_of(bucket.count, group.rank(), group.size());
    const auto memory = reducer.gradient_memory(bucket.slices.front().parameter);  // the start of the bucket
    const std::shared_ptr<void> place(memory,
                                      static_cast<std::byte*>(memory.get()) + own.begin * size_of(bucket.dtype));
    divided.gradients.push_back(
        Tensor::wrap(place.get(), {static_cast<std::int64_t>(own.count())}, bucket.dtype, place));
  }
  reducer.set_hook(make_reduce_scatter_hook(group));
}

// Returns the ranks that have inputs for the next pass. Every rank calls it before each pass.
std::vector<int> DistributedDataParallel::State::announce(bool has_inputs) {
  std::vector<std::int64_t> flags(static_cast<std::size_t>(group.size()));
  flags[static_cast<std::size_t>(group.rank())] = has_inputs ? 1 : 0;
  allreduce(group, flags);
  std::vector<int> ranks;
  for (int r = 0; r < group.size(); ++r)
    if (flags[static_cast<std::size_t>(r)] != 0) ranks.push_back(r);
  if (join_options->throw_on_early_termination && !ranks.empty() && std::ssize(ranks) < group.size())
    throw make_error(Errc::usage, "{} of {} ranks have no more inputs (throw_on_early_termination)",
                     group.size() - std::ssize(ranks), group.size());
  return ranks;
}

// Scales the average over all ranks to that over those with inputs.
void DistributedDataParallel::State::scale_averages() {
  if (!join_options || join_options->divide_by_initial_world_size || std::ssize(active) == group.size()) return;
  const double factor = static_cast<double>(group.size()) / static_cast<double>(active.size());
  for (auto& [name, parameter] : parameters) {
    Tensor gradient = parameter.grad();
    if (gradient.defined()) gradient.copy_from(kernels::scale(gradient, factor));
  }
}

void DistributedDataParallel::State::install_hooks() {
  const auto kind = may_leave_out() ? Variable::GradStorage::lazy : Variable::GradStorage::eager;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto& variable = parameters[p].second;
    auto memory = reducer.gradient_memory(p);
    void* data = memory.get();
    variable.set_grad_storage(
        Tensor::wrap(data, variable.shape(), variable.dtype(), std::move(memory), variable.device()), kind);
    hooks.push_back(variable.on_grad_ready([this, p] { gradient_ready(p); }));
  }
}

void DistributedDataParallel::State::gradient_ready(std::size_t parameter) {
  if (no_sync_depth > 0) return reducer.mark_used(parameter);
  if (!in_pass) {
    in_pass = true;
    at_end_of_backward([this] {
      reducer.finalize();
      await_buffers();  // their broadcast began before the gradients
      define_gradients();
      scale_averages();
      in_pass = false;
    });
  }
  reducer.mark_ready(parameter);
}

// A gradient is defined at every rank once any rank has used the parameter; one that several stages have counts as
// used, since the others may have used it.
void DistributedDataParallel::State::define_gradients() {
  if (!may_leave_out()) return;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (reducer.used(p) || contains(options.stages.shared, parameters[p].first)) parameters[p].second.define_grad();
}

DistributedDataParallel::DistributedDataParallel(nn::Module& model, ProcessGroup& group, const DdpOptions& options) {
  check_ignored(model, options);
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
  if (state_->in_pass) {
    throw Error(Errc::usage, "the last backward pass ended with an error: its gradients are incomplete");
  }
  if (!state_->model.training() || !grad_enabled()) return;
  const bool reduces = state_->no_sync_depth == 0;
  if (reduces && state_->join_options) state_->active = state_->announce(true);
  begin_pass(reduces);
}

// Within join() the ranks that have inputs are known only in passes that reduce.
void DistributedDataParallel::begin_pass(bool reduces) {
  const bool copies = state_->join_options ? reduces : state_->begins_step;
  if (copies && state_->options.broadcast_buffers) copy_buffers();
  state_->begins_step = reduces;
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
  if (state_->model.training()) begin_pass(state_->no_sync_depth == 0);
  join_backward();
}

void DistributedDataParallel::join_backward() {
  if (state_->no_sync_depth > 0) return;
  for (const auto& [name, parameter] : state_->parameters) parameter.grad();  // clears it if that is still to be done
  state_->reducer.join_pass();
  state_->await_buffers();
  state_->define_gradients();
}

void DistributedDataParallel::register_comm_hook(std::unique_ptr<CommHook> hook) {
  state_->reducer.set_hook(std::move(hook));
}

void DistributedDataParallel::register_comm_hook(std::function<WorkPtr(const GradBucket&)> hook) {
  register_comm_hook(make_comm_hook(std::move(hook)));
}

CommHook& DistributedDataParallel::comm_hook() {
  return state_->reducer.hook();
}

std::vector<HookState> DistributedDataParallel::hook_state() {
  auto all = comm_hook().state();
  for (auto& own : own_tensors(state_->model, state_->options).state()) all.push_back(std::move(own));
  return all;
}

std::vector<std::string> DistributedDataParallel::own_parameters() const {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : state_->model.named_parameters())
    if (contains(state_->options.ignored_parameters, name)) all.push_back(name);
  return all;
}

std::shared_ptr<void> DistributedDataParallel::evaluated_model() {
  return own_tensors(state_->model, state_->options).replaced_by_first(state_->group);
}

const DividedParameters* DistributedDataParallel::divided() const {
  return state_->flat ? &state_->divided : nullptr;
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

// Copies from the first rank that has inputs: the others' are out of date. On a device the pass is queued behind them:
// should the broadcast be aborted, the gradients of the pass are, too, and nothing is updated (Reducer::finalize()).
void DistributedDataParallel::copy_buffers() {
  const auto buffers = copied_buffers();
  if (buffers.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  state_->await_buffers();
  start_broadcast(state_->group, buffers, state_->active.empty() ? 0 : state_->active.front(), state_->buffers);
  state_->waited_for_buffers += std::chrono::steady_clock::now() - start;
}

std::vector<ParameterRef> DistributedDataParallel::copied_buffers() const {
  return references(common(state_->model.named_buffers(), state_->options));
}

void DistributedDataParallel::join(const std::function<void()>& body, const JoinOptions& options) {
  if (state_->flat) throw Error(Errc::usage, "join() does not go with shard_gradients");
  struct Scope {
    explicit Scope(State& joining, const JoinOptions& with) : state(joining) { state.join_options = &with; }
    ~Scope() {
      state.join_options = nullptr;
      state.active.clear();
    }
    State& state;
  };
  const Scope scope(*state_, options);
  body();
  int last = 0;  // a rank that took part in the last pass with inputs
  for (;;) {
    if (!state_->active.empty()) last = state_->active.front();
    state_->active = state_->announce(false);
    if (state_->active.empty()) break;
    state_->model.zero_grad();
    join_pass();
  }
  auto everything = references(common(state_->model.named_parameters(), state_->options));
  for (auto& buffer : copied_buffers()) everything.push_back(std::move(buffer));
  broadcast(state_->group, everything, last);
  state_->begins_step = true;
}

void DistributedDataParallel::sync_buffers() {
  const auto buffers = copied_buffers();
  if (buffers.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  broadcast(state_->group, buffers, 0);
  state_->waited_for_buffers += std::chrono::steady_clock::now() - start;
}

std::chrono::nanoseconds DistributedDataParallel::waited() const {
  return state_->reducer.waited() + state_->waited_for_buffers;
}

std::chrono::nanoseconds DistributedDataParallel::starting() const {
  return state_->reducer.starting();
}

void DistributedDataParallel::record_transfers(std::vector<Transfer>* into) {
  state_->reducer.record_transfers(into);
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp) : ddp_(ddp) {
  ++ddp_.state_->no_sync_depth;
}
DistributedDataParallel::NoSync::~NoSync() {
  --ddp_.state_->no_sync_depth;
}

}  // namespace ddprun
