#include "ddprun/worker/parallel/local_sgd.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/parallel/group_tensors.h"

namespace ddprun {
namespace {

LocalSgdOptions checked(const LocalSgdOptions& options) {
  if (options.period < 1) throw make_error(Errc::usage, "local SGD: a period of {} steps", options.period);
  return options;
}

std::vector<std::pair<std::string, Tensor>> what_is_averaged(const nn::Module& model) {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.requires_grad()) all.emplace_back(name, parameter.value());
  for (const auto& [name, buffer] : model.named_buffers())
    if (is_floating(buffer.dtype())) all.emplace_back(name, buffer);
  return all;
}

}  // namespace

// The average is in the model; the values of this rank come back at the end.
class LocalSgd::Average {
 public:
  explicit Average(LocalSgd& local) : local_(local) {
    for (const auto& [name, tensor] : local.averaged_) own_.push_back(tensor.clone());
    local.average();
  }
  ~Average() {
    for (std::size_t i = 0; i < own_.size(); ++i) local_.averaged_[i].second.copy_from(own_[i]);
  }
  Average(const Average&) = delete;
  Average& operator=(const Average&) = delete;

 private:
  LocalSgd& local_;
  std::vector<Tensor> own_;
};

LocalSgd::LocalSgd(nn::Module& model, ProcessGroup& group, const LocalSgdOptions& options)
    : model_(model),
      group_(group),
      options_(checked(options)),
      ddp_(model, group, options.ddp),
      averaged_(what_is_averaged(model)) {}

void LocalSgd::zero_grad() {
  ddp_.zero_grad();
  if (steps_ < options_.start_localSGD_iter)
    local_.reset();
  else if (!local_)
    local_ = ddp_.hold_reduction();
}

void LocalSgd::average() {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Span> spans;
  for (auto& [name, tensor] : averaged_) spans.push_back(span_of_tensor(tensor));
  group_.allreduce_coalesced(spans, ReduceOp::average, {.blocking = true});
  for (auto& [name, tensor] : averaged_) tensor.storage()->bump_version();
  averaging_ += std::chrono::steady_clock::now() - start;
}

void LocalSgd::parameters_updated() {
  ++steps_;
  const auto local_steps = steps_ - options_.start_localSGD_iter;
  if (local_steps > 0 && local_steps % options_.period == 0) average();
}

std::shared_ptr<void> LocalSgd::evaluated_model() {
  return std::make_shared<Average>(*this);
}

void LocalSgd::visit_parameters(const Visitor& visit) {
  const auto average = evaluated_model();
  ddp_.visit_parameters(visit);
}

// What a rank goes on with is the average that was saved, unless its own parameters come from the saved state as well.
void LocalSgd::distribute_model() {
  collected_.reset();
  ddp_.distribute_model();
}

std::vector<HookState> LocalSgd::hook_state() {
  std::vector<HookState> state{{"local_sgd/steps", {&steps_, 1, DType::int64}}};
  for (auto& [name, tensor] : averaged_) state.push_back({"local_sgd/" + name, span_of_tensor(tensor)});
  return state;
}

}  // namespace ddprun
