#include "worker/libtorch/distributed_data_parallel.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "common/error.h"
#include "worker/libtorch/parameters.h"
#include "worker/reducer/model_sync.h"

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

struct GradientAveraging::State final : DdpModel {
  State(std::shared_ptr<::torch::nn::Module> owned, ProcessGroup& group, const DdpOptions& options)
      : module(std::move(owned)),
        parameters(trainable_parameters(*module)),
        passes(group, *this, references(parameters),
               {.limits = options.limits,
                .find_unused_parameters = options.find_unused_parameters,
                .static_graph = options.static_graph,
                .delayed = {},
                .delay_until = {}},
               options.broadcast_buffers) {}

  static void install_hooks(const std::shared_ptr<State>& state);
  void move_into_bucket(std::size_t parameter);

  bool trains() const override { return module->is_training() && ::torch::GradMode::is_enabled(); }
  std::vector<ParameterRef> common_parameters() const override { return references(all_parameters(*module)); }
  std::vector<ParameterRef> common_buffers() const override { return references(all_buffers(*module)); }
  void at_end_of_backward(std::function<void()> action) override {
    ::torch::autograd::Engine::get_default_engine().queue_callback(std::move(action));
  }
  void zero_grad() override {
    for (auto& slot : slots) slot.zero_();
  }
  void settle_gradients() override {
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (!parameters[p].second.grad().defined()) slots[p].zero_();
  }
  void define_gradients() override {
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (passes.reducer().used(p)) parameters[p].second.mutable_grad() = slots[p];
  }
  void scale_gradients(double factor) override {
    const ::torch::NoGradGuard no_grad;
    for (auto& slot : slots) slot.mul_(factor);
  }

  const std::shared_ptr<::torch::nn::Module> module;
  const NamedTensors parameters;
  DdpPasses passes;
  std::vector<at::Tensor> slots;  // by parameter: its place in a bucket
  // PyTorch keeps a parameter's accumulator only as long as another holds it.
  std::vector<decltype(::torch::autograd::impl::grad_accumulator(at::Tensor()))> accumulators;
};

void GradientAveraging::State::install_hooks(const std::shared_ptr<State>& state) {
  for (std::size_t p = 0; p < state->parameters.size(); ++p) {
    const auto& parameter = state->parameters[p].second;
    auto memory = state->passes.reducer().gradient_memory(p);
    void* const data = memory.get();
    state->slots.push_back(at::from_blob(
        data, parameter.sizes(), [memory = std::move(memory)](void*) {}, parameter.options().requires_grad(false)));
    state->accumulators.push_back(::torch::autograd::impl::grad_accumulator(parameter));
    const std::weak_ptr<State> weak = state;
    state->accumulators.back()->add_post_hook(std::make_unique<AfterAccumulation>([weak, p] {
      const auto alive = weak.lock();
      if (!alive) return;
      alive->move_into_bucket(p);
      alive->passes.gradient_ready(p);
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

GradientAveraging::GradientAveraging(std::shared_ptr<::torch::nn::Module> module, ProcessGroup& group,
                                     const DdpOptions& options) {
  align_ranks(group, references(all_parameters(*module)), references(all_buffers(*module)));
  state_ = std::make_shared<State>(std::move(module), group, options);
  State::install_hooks(state_);
}

DdpPasses& GradientAveraging::passes() {
  return state_->passes;
}

}  // namespace ddprun::torch
