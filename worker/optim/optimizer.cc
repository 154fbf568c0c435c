#include "ddprun/worker/optim/optimizer.h"

#include <fmt/format.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/optim/adam.h"
#include "ddprun/worker/optim/sgd.h"

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
}

template <class T>
std::unique_ptr<Optimizer> make(const OptimOptions& options, NamedParameters parameters) {
  return std::make_unique<T>(std::move(parameters), options);
}

struct Entry {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(const OptimOptions&, NamedParameters);
};
constexpr Entry optimizers[] = {{"sgd", make<Sgd>}, {"adam", make<Adam>}};

}  // namespace

Optimizer::Optimizer(NamedParameters parameters, OptimOptions options)
    : parameters_(std::move(parameters)), options_(options) {}

void Optimizer::step() {
  ++step_count_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Variable& parameter = parameters_[i].second;
    if (!parameter.grad().defined()) continue;
    Tensor value = parameter.value();
    update(i, value, parameter.grad());
    value.storage()->bump_version();
  }
}

void Optimizer::zero_grad() {
  for (auto& [name, parameter] : parameters_) parameter.zero_grad();
}

std::vector<Tensor> Optimizer::add_state(const std::string& suffix) {
  std::vector<Tensor> tensors;
  for (const auto& [name, parameter] : parameters_) {
    tensors.push_back(Tensor::zeros_like(parameter.value()));
    state_.emplace_back(name + "." + suffix, tensors.back());
  }
  return tensors;
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimOptions& options,
                                          NamedParameters parameters) {
  check(options);
  for (const Entry& entry : optimizers) {
    if (entry.name == name) return entry.make(options, std::move(parameters));
  }
  throw make_error(Errc::usage, "there is no optimizer '{}'; there are: {}", name, fmt::join(optimizer_names(), ", "));
}

std::vector<std::string_view> optimizer_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : optimizers) names.push_back(entry.name);
  return names;
}

}  // namespace ddprun::optim
