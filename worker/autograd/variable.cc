#include "ddprun/worker/autograd/variable.h"

#include <atomic>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/node.h"

namespace ddprun {
namespace {

thread_local bool recording = true;

void check_floating(const Tensor& value) {
  if (value.dtype() != DType::float32 && value.dtype() != DType::float64) {
    throw make_error(Errc::usage, "a {} tensor cannot have a gradient: only float32 and float64",
                     name_of(value.dtype()));
  }
}

}  // namespace

Variable::Variable(Tensor value, bool requires_grad) : value_(std::move(value)) {
  if (!requires_grad) return;
  check_floating(value_);
  leaf_ = std::make_shared<autograd::Leaf>();
  leaf_->shape = value_.shape();
  leaf_->dtype = value_.dtype();
}

autograd::Leaf& Variable::leaf(const char* what) const {
  if (leaf_) return *leaf_;
  throw make_error(Errc::usage, "{}: this variable of shape {} is not a leaf that requires a gradient", what,
                   to_string(shape()));
}

const Tensor& Variable::grad() const {
  static const Tensor none;
  return leaf_ ? leaf_->gradient : none;
}

Tensor& Variable::grad() {
  return leaf("grad").gradient;
}

void Variable::set_grad_storage(Tensor storage, GradStorage kind) {
  autograd::Leaf& leaf = this->leaf("set_grad_storage");
  if (storage.shape() != leaf.shape || storage.dtype() != leaf.dtype) {
    throw make_error(Errc::mismatch, "set_grad_storage: a {} storage of shape {} for a {} parameter of shape {}",
                     name_of(storage.dtype()), to_string(storage.shape()), name_of(leaf.dtype), to_string(leaf.shape));
  }
  const bool has_gradient = leaf.gradient.defined();
  if (has_gradient) {
    storage.copy_from(leaf.gradient);
  } else {
    storage.fill(0);
  }
  leaf.storage = std::move(storage);
  leaf.lazy = kind == GradStorage::lazy;
  leaf.gradient = has_gradient || !leaf.lazy ? leaf.storage : Tensor();
}

void Variable::zero_grad() {
  autograd::Leaf& leaf = this->leaf("zero_grad");
  if (leaf.storage.defined()) leaf.storage.fill(0);
  if (!leaf.storage.defined() || leaf.lazy) leaf.gradient = Tensor();
}

void Variable::define_grad() {
  autograd::Leaf& leaf = this->leaf("define_grad");
  if (!leaf.gradient.defined()) leaf.gradient = leaf.storage;
}

void Variable::on_grad_ready(std::function<void()> hook) {
  leaf("on_grad_ready").on_ready = std::move(hook);
}

void Variable::backward() const {
  if (value_.numel() != 1) {
    throw make_error(Errc::usage, "backward: the value has shape {}; only a scalar has a gradient of its own",
                     to_string(shape()));
  }
  if (!node_) {
    throw make_error(Errc::usage,
                     "backward: nothing was recorded for this value: no input required a gradient, or "
                     "recording was off");
  }
  autograd::run_backward(node_, Tensor::full(shape(), 1, dtype()));
}

bool grad_enabled() {
  return recording;
}

NoGradScope::NoGradScope() : before_(std::exchange(recording, false)) {}
NoGradScope::~NoGradScope() {
  recording = before_;
}

namespace autograd {

struct Access {
  static Edge edge(const Variable& variable) { return {variable.leaf_, variable.node_}; }
  static void set_node(Variable& variable, std::shared_ptr<Node> node) { variable.node_ = std::move(node); }
};

bool records(const std::vector<Variable>& inputs) {
  if (!recording) return false;
  for (const Variable& input : inputs) {
    if (input.requires_grad()) return true;
  }
  return false;
}

Variable record(Tensor value, const std::vector<Variable>& inputs, BackwardFunction backward) {
  static std::atomic<std::uint64_t> next_number = 0;  // of the process: a tape may move to another thread
  Variable result(std::move(value));
  if (!records(inputs)) return result;
  std::vector<Edge> edges;
  edges.reserve(inputs.size());
  for (const Variable& input : inputs) edges.push_back(Access::edge(input));
  Access::set_node(result, std::make_shared<Node>(next_number++, std::move(edges), std::move(backward)));
  return result;
}

}  // namespace autograd
}  // namespace ddprun
