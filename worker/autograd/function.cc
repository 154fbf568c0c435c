#include "worker/autograd/function.h"

#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/autograd/interruption.h"
#include "worker/autograd/node.h"
#include "worker/autograd/operation_observer.h"
#include "worker/autograd/placement_check.h"
#include "worker/autograd/recomputation.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/shape_only.h"

namespace ddprun::autograd {
namespace {

thread_local NameScopes scopes;
thread_local bool anomaly = false;
thread_local SavedBytesScope* saved_bytes = nullptr;
thread_local OperationObserver* observer = nullptr;
thread_local const std::function<void()>* interruption_check = nullptr;

// Checks an operation's operands, one after the other: their contents are there, and on one device.
class OperandCheck {
 public:
  explicit OperandCheck(const char* name) : name_(name) {}

  void operator()(const Tensor& tensor) {
    if (!tensor.defined()) return;
    if (!tensor.storage()->is_present() && !shapes_only())
      throw make_error(
          Errc::usage,
          "{}: an operand of shape {} is absent: a sharded parameter is there for the calls of the modules "
          "that registered it, and for those around them",
          describe_operation(name_, current_scope()), to_string(tensor.shape()));
    if (!first_) {
      first_ = &tensor;
    } else if (tensor.device() != first_->device()) {
      throw make_error(Errc::mismatch, "{}: one operand is on {}, another on {}",
                       describe_operation(name_, current_scope()), to_string(first_->device()),
                       to_string(tensor.device()));
    }
  }

 private:
  const char* name_;
  const Tensor* first_ = nullptr;
};

bool any_requires_grad(const std::vector<Variable>& inputs) {
  for (const Variable& input : inputs)
    if (input.requires_grad()) return true;
  return false;
}

}  // namespace

Function::Function(const char* name, std::initializer_list<Variable> inputs, std::initializer_list<Tensor> others)
    : name_(name), inputs_(inputs), records_(grad_enabled() && any_requires_grad(inputs_)) {
  check_interruption();
  record_inputs(name, inputs_);
  check_placements(name, inputs_);
  OperandCheck check(name);
  for (const Variable& input : inputs_) check(input.value());
  for (const Tensor& other : others) check(other);
  if (observer) begin_observation();
}

Function::Function(const char* name, std::vector<Variable> inputs)
    : name_(name), inputs_(std::move(inputs)), records_(grad_enabled() && any_requires_grad(inputs_)) {
  check_interruption();
  record_inputs(name, inputs_);
  check_placements(name, inputs_);
  OperandCheck check(name);
  for (const Variable& input : inputs_) check(input.value());
  if (observer) begin_observation();
}

// Called after all that the constructor can throw: only then is there a destructor that ends it.
void Function::begin_observation() {
  observer_ = observer;
  observer_->forward_begins(name_);
}

void Function::end_observation() {
  observer_->forward_ends();
}

bool Function::needs_value() const {
  is_product_ = true;
  return record_product();
}

Variable Function::record(Tensor value, std::vector<Tensor> saved, BackwardFunction backward) const {
  if (anomaly) check_finite(value, describe_operation(name_, current_scope()), "its result");
  record_saved(is_product_, value, saved);
  Variable result(std::move(value));
  place_result(name_, inputs_, result);
  const double cost = observer_ ? observer_->result_computed(name_, inputs_, result.value()) : 0;
  if (!records_) return result;
  std::vector<Edge> edges;
  edges.reserve(inputs_.size());
  for (const Variable& input : inputs_) edges.push_back(Access::edge(input));
  SavedBytesScope::note(inputs_, saved);
  auto node = std::make_shared<Node>(name_, std::move(edges), std::move(saved), std::move(backward));
  if (anomaly || observer_) node->scope = current_scope();
  node->cost = cost;
  Access::set_producer(result, std::move(node));
  return result;
}

SavedBytesScope::SavedBytesScope(std::map<std::string, std::size_t>& bytes)
    : bytes_(bytes), before_(std::exchange(saved_bytes, this)) {}
SavedBytesScope::~SavedBytesScope() {
  saved_bytes = before_;
}

void SavedBytesScope::note(const std::vector<Variable>& inputs, const std::vector<Tensor>& saved) {
  if (!saved_bytes) return;
  auto& counted = saved_bytes->counted_;
  for (const Variable& input : inputs)
    if (input.is_leaf() && input.requires_grad()) counted.insert(input.value().storage().get());
  for (const Tensor& tensor : saved)
    if (tensor.defined() && counted.insert(tensor.storage().get()).second)
      saved_bytes->bytes_[current_scope()] += tensor.storage()->bytes();
}

AnomalyScope::AnomalyScope() : before_(std::exchange(anomaly, true)) {}
AnomalyScope::~AnomalyScope() {
  anomaly = before_;
}

bool anomaly_detection() {
  return anomaly;
}

ObservationScope::ObservationScope(OperationObserver& now) : before_(std::exchange(observer, &now)) {}
ObservationScope::~ObservationScope() {
  observer = before_;
}

OperationObserver* operation_observer() {
  return observer;
}

InterruptionScope::InterruptionScope(std::function<void()> check)
    : check_(std::move(check)), before_(std::exchange(interruption_check, &check_)) {}
InterruptionScope::~InterruptionScope() {
  interruption_check = before_;
}

bool may_be_interrupted() {
  return interruption_check != nullptr;
}

void check_interruption() {
  if (interruption_check) (*interruption_check)();
}

NameScope::NameScope(const std::string& name) {
  scopes.push_back(&name);
}
NameScope::~NameScope() {
  scopes.pop_back();
}

const NameScopes& name_scopes() {
  return scopes;
}

NameScopesRestored::NameScopesRestored(NameScopes names) : before_(std::exchange(scopes, std::move(names))) {}
NameScopesRestored::~NameScopesRestored() {
  scopes = std::move(before_);
}

std::string current_scope() {
  std::string path;
  for (const std::string* name : scopes) {
    if (name->empty()) continue;
    if (!path.empty()) path += '.';
    path += *name;
  }
  return path;
}

std::string describe_operation(const char* name, const std::string& scope) {
  return scope.empty() ? std::string(name) : fmt::format("{} in module {}", name, scope);
}

void check_finite(const Tensor& value, const std::string& operation, const std::string& what) {
  if (kernels::all_finite(value)) return;
  throw make_error(Errc::unsupported, "{} produced a NaN or an infinity: {}, of shape {}, holds one", operation, what,
                   to_string(value.shape()));
}

}  // namespace ddprun::autograd
