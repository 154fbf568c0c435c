#include "worker/optim/optimizer.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "common/error.h"
#include "worker/optim/makers.h"
#include "worker/optim/offload.h"
#include "worker/tensor/memory_owner.h"
#include "worker/tensor/shape_only.h"

namespace ddprun::optim {
namespace {

void check_at_least_zero(const char* name, double value) {
  if (!(value >= 0)) throw make_error(Errc::usage, "optimizer: {} is {}, but has to be at least 0", name, value);
}

void check_below_one(const char* name, double value) {
  if (!(value >= 0 && value < 1)) {
    throw make_error(Errc::usage, "optimizer: {} is {}, but has to be at least 0 and below 1", name, value);
  }
}

void check(const OptimOptions& options) {
  check_at_least_zero("lr", options.lr);
  check_at_least_zero("momentum", options.momentum);
  check_at_least_zero("weight_decay", options.weight_decay);
  check_below_one("beta1", options.beta1);
  check_below_one("beta2", options.beta2);
  check_at_least_zero("eps", options.eps);
  check_at_least_zero("dampening", options.dampening);
  check_below_one("alpha", options.alpha);
  check_at_least_zero("lr_decay", options.lr_decay);
  check_at_least_zero("trust_coefficient", options.trust_coefficient);
  check_at_least_zero("ns_steps", static_cast<double>(options.ns_steps));
  if (options.adjust_lr_fn != "original" && options.adjust_lr_fn != "match_rms_adamw")
    throw make_error(Errc::usage, "optimizer: adjust_lr_fn is {}, but has to be original or match_rms_adamw",
                     options.adjust_lr_fn);
  if (options.nesterov && (options.momentum == 0 || options.dampening > 0))
    throw make_error(Errc::usage, "optimizer: nesterov needs a momentum and no dampening, not {} and {}",
                     options.momentum, options.dampening);
}

// Names are those of the state, so they have to differ. Tied parameters may be in one group.
void check(const std::vector<ParameterGroup>& groups) {
  std::set<std::string_view> names;
  std::map<const void*, std::size_t> group_of;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    check_at_least_zero("a group's lr_factor", groups[i].options.lr_factor);
    check_at_least_zero("a group's weight_decay", groups[i].options.weight_decay.value_or(0));
    for (const auto& [name, parameter] : groups[i].parameters) {
      if (!names.insert(name).second) throw make_error(Errc::usage, "optimizer: two parameters are named {}", name);
      if (parameter.value().numel() > 0 && group_of.emplace(parameter.value().raw(), i).first->second != i)
        throw make_error(Errc::usage, "optimizer: parameter {} is in two groups", name);
    }
  }
}

struct Entry {
  std::string_view name;
  Maker* make;
  bool elementwise;
};
constexpr Entry optimizers[] = {
    {"sgd", make_sgd, true},         {"adam", make_adam, true},       {"adamw", make_adamw, true},
    {"rmsprop", make_rmsprop, true}, {"adagrad", make_adagrad, true}, {"lamb", make_lamb, false},
    {"lars", make_lars, false},      {"muon", make_muon, false},
};

const Entry& entry_of(std::string_view name) {
  for (const Entry& entry : optimizers)
    if (entry.name == name) return entry;
  throw make_error(Errc::usage, "there is no optimizer '{}'; there are: {}", name, fmt::join(optimizer_names(), ", "));
}

}  // namespace

Optimizer::Optimizer(std::vector<ParameterGroup> groups, const OptimOptions& options) : options_(options) {
  for (ParameterGroup& group : groups) {
    const std::size_t begin = parameters_.size();
    for (auto& parameter : group.parameters) parameters_.push_back(std::move(parameter));
    groups_.push_back({.lr_factor = group.options.lr_factor,
                       .weight_decay = group.options.weight_decay.value_or(options.weight_decay),
                       .begin = begin,
                       .end = parameters_.size()});
  }
}

void Optimizer::step() {
  // Before the update: recovery knows one that was interrupted in its collectives by a count ahead of the run's steps.
  ++step_count_;
  if (shapes_only()) return;  // state exists from construction on
  for (const Group& group : groups_)
    update({.lr = options_.lr * group.lr_factor,
            .weight_decay = group.weight_decay,
            .begin = group.begin,
            .end = group.end,
            .number = static_cast<std::size_t>(&group - groups_.data())});
}

void Optimizer::skip_if(std::vector<StepFlags> flags) {
  if (!flags.empty() && !can_skip())
    throw Error(Errc::unsupported, "this optimizer cannot leave out a step that a device decides about");
  flags_ = std::move(flags);
}

const float* Optimizer::skip(Device device) const {
  const StepFlags* flags = flags_on(device, flags_);
  return flags != nullptr ? number_in<float>(flags->skip) : nullptr;
}

const double* Optimizer::left_out(Device device) const {
  const StepFlags* flags = flags_on(device, flags_);
  return flags != nullptr ? number_in<double>(flags->left_out) : nullptr;
}

Shape Optimizer::whole_shape(std::size_t index) const {
  const auto& [name, parameter] = parameters_[index];
  return options_.parts ? options_.parts->whole_shape(name) : parameter.shape();
}

void Optimizer::add_up(const GroupStep& group, std::vector<double>& numbers) const {
  if (!options_.parts) return;
  std::vector<std::string> names;
  for (std::size_t i = group.begin; i < group.end; ++i)
    if (parameters_[i].second.grad().defined()) names.push_back(parameters_[i].first);
  options_.parts->add_up(names, numbers);
}

void Optimizer::zero_grad() {
  for (auto& [name, parameter] : parameters_) parameter.zero_grad();
}

void Optimizer::clear_lists() {
  for (auto* list : {&lists_.values, &lists_.gradients, &lists_.first_state, &lists_.second_state}) list->clear();
}

Tensor Optimizer::state_like(const Tensor& parameter) const {
  const MemoryScope scope(MemoryOwner::optimizer);
  if (options_.offload.empty() || shapes_only()) return Tensor::zeros_like(parameter);
  if (parameter.device().type != DeviceType::cpu)
    throw make_error(Errc::unsupported, "optimizer: offload is for parameters on the CPU, not on {}",
                     to_string(parameter.device()));
  return zeros_in_file(parameter.shape(), parameter.dtype(), options_.offload);
}

std::vector<Tensor> Optimizer::add_state(const std::string& suffix, bool (*has)(std::string_view, const Shape&)) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    if (has != nullptr && !has(name, whole_shape(i))) {
      tensors.emplace_back();
      continue;
    }
    tensors.push_back(state_like(parameter.value()));
    state_.emplace_back(name + "." + suffix, tensors.back());
  }
  return tensors;
}

std::vector<Tensor> Optimizer::add_counters(const std::string& suffix) {
  std::vector<Tensor> tensors;
  for (const auto& [name, parameter] : parameters_) {
    tensors.push_back(Tensor::zeros({}, DType::int64, parameter.device()));
    state_.emplace_back(name + "." + suffix, tensors.back());
  }
  return tensors;
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimOptions& options,
                                          std::vector<ParameterGroup> groups) {
  check(options);
  check(groups);
  return entry_of(name).make(options, std::move(groups));
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimOptions& options,
                                          NamedParameters parameters) {
  return make_optimizer(name, options,
                        std::vector<ParameterGroup>{{.parameters = std::move(parameters), .options = {}}});
}

std::vector<std::string_view> optimizer_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : optimizers) names.push_back(entry.name);
  return names;
}

bool is_elementwise(std::string_view name) {
  return entry_of(name).elementwise;
}

}  // namespace ddprun::optim
