#include "worker/autograd/variable.h"

#include <utility>

#include "common/error.h"
#include "worker/autograd/node.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

thread_local bool recording = true;

void check_floating(const Tensor& value) {
  if (is_floating(value.dtype())) return;
  throw make_error(Errc::usage, "a {} tensor cannot have a gradient: only floating-point types can",
                   name_of(value.dtype()));
}

}  // namespace

Variable::Variable(Tensor value, bool requires_grad) : node_(std::make_shared<autograd::VariableNode>()) {
  if (requires_grad) check_floating(value);
  node_->value = std::move(value);
  node_->requires_grad = requires_grad;
}

const Tensor& Variable::value() const {
  static const Tensor undefined;
  return node_ ? node_->value : undefined;
}

bool Variable::is_leaf() const {
  return node_ && !node_->producer;
}

bool Variable::requires_grad() const {
  return node_ && (node_->requires_grad || node_->producer);
}

void Variable::set_requires_grad(bool on) {
  if (!is_leaf())
    throw Error(Errc::usage, "set_requires_grad: this variable is the result of an operation, not a leaf");
  if (on) check_floating(node_->value);
  node_->requires_grad = on;
  if (on) return;
  node_->make_storage = nullptr;
  node_->gradient = Tensor();
  node_->storage = Tensor();
  node_->clear_pending = false;
}

void Variable::set_value(Tensor value) {
  if (!is_leaf()) throw Error(Errc::usage, "set_value: this variable is the result of an operation, not a leaf");
  if (node_->requires_grad) check_floating(value);
  node_->value = std::move(value);
  node_->gradient = Tensor();
  node_->storage = Tensor();
  node_->clear_pending = false;
}

autograd::VariableNode& Variable::leaf(const char* what) const {
  if (node_ && node_->requires_grad) return *node_;
  throw make_error(Errc::usage, "{}: this variable of shape {} is not a leaf that requires a gradient", what,
                   to_string(shape()));
}

const Tensor& Variable::grad() const {
  static const Tensor none;
  if (!node_) return none;
  node_->clear_if_pending();
  return node_->gradient;
}

void Variable::set_grad_storage(Tensor storage, GradStorage kind) {
  autograd::VariableNode& leaf = this->leaf("set_grad_storage");
  if (storage.shape() != shape() || storage.dtype() != dtype()) {
    throw make_error(Errc::mismatch, "set_grad_storage: a {} storage of shape {} for a {} parameter of shape {}",
                     name_of(storage.dtype()), to_string(storage.shape()), name_of(dtype()), to_string(shape()));
  }
  leaf.clear_if_pending();
  const bool has_gradient = leaf.gradient.defined();
  if (has_gradient) {
    storage.copy_from(leaf.gradient);
  } else {
    storage.fill(0);
  }
  leaf.storage = std::move(storage);
  leaf.lazy = kind == GradStorage::lazy;
  leaf.borrowed = kind == GradStorage::borrowed;
  leaf.gradient = has_gradient || !leaf.lazy ? leaf.storage : Tensor();
}

void Variable::set_grad_storage(std::function<Tensor()> make) {
  autograd::VariableNode& leaf = this->leaf("set_grad_storage");
  release_grad();
  leaf.make_storage = std::move(make);
}

void Variable::release_grad() {
  autograd::VariableNode& leaf = this->leaf("release_grad");
  leaf.gradient = Tensor();
  leaf.storage = Tensor();
  leaf.clear_pending = false;
}

void Variable::zero_grad() {
  autograd::VariableNode& leaf = this->leaf("zero_grad");
  if (leaf.borrowed)
    throw Error(Errc::usage,
                "zero_grad: the gradient is a part of the model's: call zero_grad() of the model, or of what "
                "synchronizes its gradients");
  leaf.clear_pending = leaf.storage.defined() && !leaf.lazy;
  if (leaf.clear_pending) return;
  if (leaf.storage.defined()) leaf.storage.fill(0);
  leaf.gradient = Tensor();
}

void Variable::define_grad() {
  autograd::VariableNode& leaf = this->leaf("define_grad");
  if (!leaf.gradient.defined()) leaf.gradient = leaf.storage;
}

void Variable::undefine_grad() {
  leaf("undefine_grad").gradient = Tensor();
}

Variable::Hook Variable::on_grad_ready(std::function<void()> hook) const {
  autograd::VariableNode& leaf = this->leaf("on_grad_ready");
  Hook handle;
  handle.node_ = node_;
  handle.number_ = leaf.next_hook++;
  leaf.hooks.emplace_back(handle.number_, std::move(hook));
  return handle;
}

Variable::Hook::Hook(Hook&& other) noexcept : node_(std::move(other.node_)), number_(other.number_) {}

Variable::Hook& Variable::Hook::operator=(Hook&& other) noexcept {
  std::swap(node_, other.node_);
  std::swap(number_, other.number_);
  return *this;
}

Variable::Hook::~Hook() {
  if (const auto node = node_.lock())
    std::erase_if(node->hooks, [this](const auto& each) { return each.first == number_; });
}

void Variable::backward(const Tensor& gradient) const {
  ddprun::backward({*this}, {gradient});
}

namespace {

Tensor checked_gradient(const Variable& variable, const Tensor& gradient) {
  const Tensor& value = variable.value();
  if (!gradient.defined()) {
    if (value.numel() == 1) return Tensor::full(value.shape(), 1, value.dtype(), value.device());
    throw make_error(Errc::usage, "backward: the value has shape {}; only a scalar has a gradient of its own",
                     to_string(value.shape()));
  }
  if (gradient.shape() != value.shape() || gradient.dtype() != value.dtype()) {
    throw make_error(Errc::mismatch, "backward: a {} gradient of shape {} for a {} value of shape {}",
                     name_of(gradient.dtype()), to_string(gradient.shape()), name_of(value.dtype()),
                     to_string(value.shape()));
  }
  return gradient;
}

autograd::Root root(const Variable& variable, const Tensor& gradient) {
  Tensor checked = checked_gradient(variable, gradient);
  if (!variable.requires_grad()) {
    throw make_error(Errc::usage,
                     "backward: nothing was recorded for this value: no input required a gradient, or recording was "
                     "off");
  }
  return {autograd::Access::edge(variable), std::move(checked)};
}

}  // namespace

void backward(const std::vector<Variable>& roots, const std::vector<Tensor>& gradients) {
  if (!gradients.empty() && gradients.size() != roots.size()) {
    throw make_error(Errc::usage, "backward: {} gradients are given for {} values", gradients.size(), roots.size());
  }
  std::vector<autograd::Root> all;
  for (std::size_t i = 0; i < roots.size(); ++i)
    all.push_back(root(roots[i], gradients.empty() ? Tensor() : gradients[i]));
  autograd::run_backward(std::move(all));
}

bool grad_enabled() {
  return recording;
}

autograd::RecordingScope::RecordingScope() : before_(std::exchange(recording, true)) {}
autograd::RecordingScope::~RecordingScope() {
  recording = before_;
}

NoGradScope::NoGradScope() : before_(std::exchange(recording, false)) {}
NoGradScope::~NoGradScope() {
  recording = before_;
}

}  // namespace ddprun
