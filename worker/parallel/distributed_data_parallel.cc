#include "ddprun/worker/parallel/distributed_data_parallel.h"

#include <utility>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/collectives.h"
#include "ddprun/worker/parallel/flat_parameters.h"
#include "ddprun/worker/reducer/hooks/reduce_scatter_hook.h"
#include "ddprun/worker/reducer/model_check.h"
#include "ddprun/worker/reducer/shards.h"

namespace ddprun {
namespace {

ParameterRef reference(const std::string& name, Tensor tensor) {
  return {name, {tensor.shape().begin(), tensor.shape().end()}, tensor.dtype(), tensor.raw()};
}

std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Variable>>& parameters) {
  std::vector<ParameterRef> result;
  for (const auto& [name, variable] : parameters) result.push_back(reference(name, variable.value()));
  return result;
}

std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Tensor>>& buffers) {
  std::vector<ParameterRef> result;
  for (const auto& [name, tensor] : buffers) result.push_back(reference(name, tensor));
  return result;
}

std::vector<std::pair<std::string, Variable>> trainable(const nn::Module& model) {
  auto parameters = model.named_parameters();
  std::erase_if(parameters, [](const auto& each) { return !each.second.requires_grad(); });
  return parameters;
}

std::vector<Span> spans(const std::vector<ParameterRef>& list) {
  std::vector<Span> result;
  for (const auto& each : list) result.push_back(each.span());
  return result;
}

// All ranks equal to rank 0, once it is certain that they mean the same.
void align_ranks(ProcessGroup& group, const nn::Module& model) {
  auto everything = references(model.named_parameters());
  for (auto& buffer : references(model.named_buffers())) everything.push_back(std::move(buffer));
  check_same_model(group, everything);
  group.broadcast_coalesced(spans(everything), 0, {.blocking = true});
}

}  // namespace

struct DistributedDataParallel::State {
  State(nn::Module& module, ProcessGroup& process_group, const DdpOptions& ddp_options)
      : model(module),
        group(process_group),
        options(ddp_options),
        parameters(trainable(module)),
        reducer(process_group, references(parameters),
                {.limits = options.limits, .find_unused_parameters = options.find_unused_parameters}) {}

  void shard();
  void install_hooks();
  void gradient_ready(std::size_t parameter);
  void define_gradients();

  nn::Module& model;
  ProcessGroup& group;
  const DdpOptions options;
  std::vector<std::pair<std::string, Variable>> parameters;
  Reducer reducer;
  std::unique_ptr<FlatParameters> flat;  // with shard_gradients
  DividedParameters divided;
  int no_sync_depth = 0;
  std::vector<Variable::Hook> hooks;
  std::chrono::nanoseconds waited_for_buffers{};
  bool in_pass = false;  // a reduced backward pass has begun and not ended
};

void DistributedDataParallel::State::shard() {
  if (options.find_unused_parameters)
    throw Error(Errc::usage, "shard_gradients and find_unused_parameters exclude each other");
  flat = std::make_unique<FlatParameters>(group, parameters, reducer.buckets());
  divided = {.parameters = parameters, .buckets = reducer.buckets(), .values = flat->parts(group), .gradients = {}};
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

void DistributedDataParallel::State::install_hooks() {
  const auto kind = options.find_unused_parameters ? Variable::GradStorage::lazy : Variable::GradStorage::eager;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto& variable = parameters[p].second;
    auto memory = reducer.gradient_memory(p);
    void* data = memory.get();
    variable.set_grad_storage(Tensor::wrap(data, variable.shape(), variable.dtype(), std::move(memory)), kind);
    hooks.push_back(variable.on_grad_ready([this, p] { gradient_ready(p); }));
  }
}

void DistributedDataParallel::State::gradient_ready(std::size_t parameter) {
  if (no_sync_depth > 0) return reducer.mark_used(parameter);
  if (!in_pass) {
    in_pass = true;
    at_end_of_backward([this] {
      reducer.finalize();
      define_gradients();
      in_pass = false;
    });
  }
  reducer.mark_ready(parameter);
}

// A gradient is defined at every rank once any rank has used the parameter.
void DistributedDataParallel::State::define_gradients() {
  if (!options.find_unused_parameters) return;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (reducer.used(p)) parameters[p].second.define_grad();
}

DistributedDataParallel::DistributedDataParallel(nn::Module& model, ProcessGroup& group, const DdpOptions& options) {
  align_ranks(group, model);
  state_ = std::make_unique<State>(model, group, options);
  if (options.shard_gradients) state_->shard();
  state_->install_hooks();
}

DistributedDataParallel::~DistributedDataParallel() = default;

nn::Module& DistributedDataParallel::module() {
  return state_->model;
}

void DistributedDataParallel::begin_forward() {
  if (state_->in_pass) {
    throw Error(Errc::usage, "the last backward pass ended with an error: its gradients are incomplete");
  }
  const bool training = state_->model.training() && grad_enabled() && state_->no_sync_depth == 0;
  if (training && state_->options.broadcast_buffers) sync_buffers();
}

Variable DistributedDataParallel::forward(const Variable& input) {
  begin_forward();
  return state_->model(input);
}

std::vector<Variable> DistributedDataParallel::forward(const std::vector<Variable>& inputs) {
  begin_forward();
  return state_->model(inputs);
}

void DistributedDataParallel::join_pass() {
  if (state_->no_sync_depth > 0) return;
  if (state_->model.training() && state_->options.broadcast_buffers) sync_buffers();
  for (const auto& [name, parameter] : state_->parameters) parameter.grad();  // its memory is zero from here on
  state_->reducer.join_pass();
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
  if (state_->flat) state_->flat->gather(state_->group);
}

void DistributedDataParallel::visit_parameters(const Visitor& visit) {
  for (const auto& [name, parameter] : state_->model.named_parameters()) visit(name, parameter.value());
}

void DistributedDataParallel::distribute_model() {
  const auto parameters = references(state_->model.named_parameters());
  state_->group.broadcast_coalesced(spans(parameters), 0, {.blocking = true});
  sync_buffers();
}

void DistributedDataParallel::sync_buffers() {
  const auto buffers = references(state_->model.named_buffers());
  if (buffers.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  state_->group.broadcast_coalesced(spans(buffers), 0, {.blocking = true});
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
