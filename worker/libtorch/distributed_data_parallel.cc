#include "worker/libtorch/distributed_data_parallel.h"

#include <cstring>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "common/error.h"
#include "worker/comm/collectives.h"
#include "worker/libtorch/parameters.h"
#include "worker/reducer/model_check.h"

namespace ddprun::torch {
namespace {

using ::torch::autograd::variable_list;

// Called each time that a pass has added to a parameter's gradient.
class AfterAccumulation final : public ::torch::autograd::FunctionPostHook {
 public:
  explicit AfterAccumulation(std::function<void()> action) : action_(std::move(action)) {}
  variable_list operator()(const variable_list& outputs, const variable_list& /*inputs*/) override {
    action_();
    return outputs;
  }

 private:
  const std::function<void()> action_;
};

}  // namespace

struct GradientAveraging::State {
  State(std::shared_ptr<::torch::nn::Module> owned, ProcessGroup& process_group, const DdpOptions& ddp_options)
      : module(std::move(owned)),
        group(process_group),
        options(ddp_options),
        parameters(trainable_parameters(*module)),
        reducer(group, references(parameters),
                {.limits = options.limits,
                 .find_unused_parameters = options.find_unused_parameters,
                 .static_graph = options.static_graph,
                 .delayed = {},
                 .delay_until = {}}) {}

  static void install_hooks(const std::shared_ptr<State>& state);
  void after_accumulation(std::size_t parameter);
  void move_into_bucket(std::size_t parameter);
  void clear_unreached();
  void define_gradients();
  std::vector<int> announce(bool has_inputs);
  void copy_buffers_of(int rank) { broadcast(group, all_buffers(*module), rank); }

  const std::shared_ptr<::torch::nn::Module> module;
  ProcessGroup& group;
  const DdpOptions options;
  const NamedTensors parameters;
  Reducer reducer;
  std::vector<at::Tensor> slots;  // by parameter: its place in a bucket
  // PyTorch keeps a parameter's accumulator only as long as another holds it.
  std::vector<decltype(::torch::autograd::impl::grad_accumulator(at::Tensor()))> accumulators;
  std::vector<char> reached;  // by parameter: whether this pass has reached it
  int no_sync_depth = 0;
  bool in_pass = false;     // a reduced backward pass has begun and not ended
  bool begins_step = true;  // the next training pass is the first one since gradients were reduced
  bool joining = false;
  std::vector<int> active;  // within join(): ranks that have inputs in this pass
};

void GradientAveraging::State::install_hooks(const std::shared_ptr<State>& state) {
  state->reached.assign(state->parameters.size(), 0);
  for (std::size_t p = 0; p < state->parameters.size(); ++p) {
    const auto& parameter = state->parameters[p].second;
    auto memory = state->reducer.gradient_memory(p);
    void* const data = memory.get();
    state->slots.push_back(at::from_blob(
        data, parameter.sizes(), [memory = std::move(memory)](void*) {}, parameter.options().requires_grad(false)));
    state->accumulators.push_back(::torch::autograd::impl::grad_accumulator(parameter));
    const std::weak_ptr<State> weak = state;
    state->accumulators.back()->add_post_hook(std::make_unique<AfterAccumulation>([weak, p] {
      if (const auto alive = weak.lock()) alive->after_accumulation(p);
    }));
  }
}

// Moves a gradient that was undefined, and for which the engine made a tensor of its own.
void GradientAveraging::State::move_into_bucket(std::size_t parameter) {
  at::Tensor& gradient = parameters[parameter].second.mutable_grad();
  at::Tensor& slot = slots[parameter];
  if (gradient.is_sparse())
    throw Error(Errc::unsupported, parameters[parameter].first + " has a sparse gradient, which is not averaged");
  if (gradient.data_ptr() == slot.data_ptr()) return;
  const ::torch::NoGradGuard no_grad;
  slot.copy_(gradient);
  gradient = slot;
}

void GradientAveraging::State::after_accumulation(std::size_t parameter) {
  move_into_bucket(parameter);
  reached[parameter] = 1;
  if (no_sync_depth > 0) return reducer.mark_used(parameter);
  if (!in_pass) {
    in_pass = true;
    ::torch::autograd::Engine::get_default_engine().queue_callback([this] {
      clear_unreached();
      reducer.finalize();
      define_gradients();
      in_pass = false;
    });
  }
  reducer.mark_ready(parameter);
}

// Clears what earlier passes left in the bucket for a gradient that is undefined.
void GradientAveraging::State::clear_unreached() {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!reached[p] && !parameters[p].second.grad().defined()) slots[p].zero_();
    reached[p] = 0;
  }
}

// Defines a gradient at every rank once any rank has used the parameter.
void GradientAveraging::State::define_gradients() {
  const bool may_leave_out = options.find_unused_parameters || options.static_graph;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (!may_leave_out || reducer.used(p)) parameters[p].second.mutable_grad() = slots[p];
}

// Finds the ranks that have inputs for the next pass. Every rank calls it before each pass.
std::vector<int> GradientAveraging::State::announce(bool has_inputs) {
  std::vector<std::int64_t> flags(static_cast<std::size_t>(group.size()));
  flags[static_cast<std::size_t>(group.rank())] = has_inputs ? 1 : 0;
  allreduce(group, flags);
  std::vector<int> ranks;
  for (int r = 0; r < group.size(); ++r)
    if (flags[static_cast<std::size_t>(r)] != 0) ranks.push_back(r);
  return ranks;
}

GradientAveraging::GradientAveraging(std::shared_ptr<::torch::nn::Module> module, ProcessGroup& group,
                                     const DdpOptions& options) {
  const auto parameters = all_parameters(*module), buffers = all_buffers(*module);
  auto everything = references(parameters);
  for (auto& buffer : references(buffers)) everything.push_back(std::move(buffer));
  check_same_model(group, everything);
  broadcast(group, parameters, 0);
  broadcast(group, buffers, 0);
  state_ = std::make_shared<State>(std::move(module), group, options);
  State::install_hooks(state_);
}

void GradientAveraging::prepare_forward() {
  if (state_->in_pass)
    throw Error(Errc::usage, "the last backward pass ended with an error: its gradients are incomplete");
  if (!state_->module->is_training() || !::torch::GradMode::is_enabled()) return;
  const bool reduces = state_->no_sync_depth == 0;
  if (reduces && state_->joining) state_->active = state_->announce(true);
  // Within join() the ranks that have inputs are known only in passes that reduce.
  const bool copies = state_->joining ? reduces : state_->begins_step;
  if (copies && state_->options.broadcast_buffers)
    state_->copy_buffers_of(state_->active.empty() ? 0 : state_->active.front());
  state_->begins_step = reduces;
}

void GradientAveraging::sync_buffers() {
  state_->copy_buffers_of(0);
}

void GradientAveraging::register_comm_hook(std::unique_ptr<CommHook> hook) {
  state_->reducer.set_hook(std::move(hook));
}

void GradientAveraging::join(const std::function<void()>& body) {
  struct Scope {
    explicit Scope(State& of) : state(of) { state.joining = true; }
    ~Scope() {
      state.joining = false;
      state.active.clear();
    }
    State& state;
  };
  const Scope scope(*state_);
  body();
  int last = 0;  // a rank that took part in the last pass with inputs
  for (;;) {
    if (!state_->active.empty()) last = state_->active.front();
    state_->active = state_->announce(false);
    if (state_->active.empty()) break;
    if (state_->module->is_training() && state_->options.broadcast_buffers)
      state_->copy_buffers_of(state_->active.front());
    for (auto& slot : state_->slots) slot.zero_();
    state_->reducer.join_pass();
    state_->define_gradients();
  }
  const ::torch::NoGradGuard no_grad;
  broadcast(state_->group, all_parameters(*state_->module), last);
  broadcast(state_->group, all_buffers(*state_->module), last);
}

GradientAveraging::NoSync::NoSync(GradientAveraging& averaging) : averaging_(averaging) {
  ++averaging_.state_->no_sync_depth;
}
GradientAveraging::NoSync::~NoSync() {
  --averaging_.state_->no_sync_depth;
}

}  // namespace ddprun::torch
