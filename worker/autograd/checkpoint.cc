#include "worker/autograd/checkpoint.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/node.h"
#include "worker/autograd/placement_check.h"
#include "worker/autograd/recomputation.h"

namespace ddprun::autograd {
namespace {

thread_local Recomputation* first_call = nullptr;
thread_local const Recomputation* second_call = nullptr;
thread_local std::size_t next_stream = 0;   // that of second_call
thread_local std::size_t next_product = 0;  // that of second_call

thread_local const ContextScope* innermost = nullptr;

void record_leaf(Recomputation& call, const Variable& leaf) {
  const auto same = [&](const Variable& earlier) { return earlier.is(leaf); };
  if (std::none_of(call.leaves.begin(), call.leaves.end(), same)) call.leaves.push_back(leaf);
}

std::vector<Variable> detached(const std::vector<Variable>& inputs) {
  std::vector<Variable> values;
  for (const Variable& input : inputs) {
    values.push_back(input.defined() ? input.detach() : Variable());
    if (input.defined()) place_like(input, values.back());
  }
  return values;
}

// The arguments of the second call; the inputs are saved with the record.
struct Call {
  CheckpointFunction function;
  Recomputation first;
  std::vector<bool> defined;
  NameScopes names;
  DType autocast;
  std::vector<ContextScope::Maker> contexts;
};

class ContextsRestored {
 public:
  explicit ContextsRestored(const std::vector<ContextScope::Maker>& makers) {
    for (const auto& make : makers) scopes_.push_back(make());
  }
  ~ContextsRestored() {
    while (!scopes_.empty()) scopes_.pop_back();  // scopes end in the reverse order
  }
  ContextsRestored(const ContextsRestored&) = delete;
  ContextsRestored& operator=(const ContextsRestored&) = delete;

 private:
  std::vector<std::shared_ptr<void>> scopes_;
};

// Returns the input as the result of an operation, as it was in the first call: gradients of leaves take other paths.
Variable as_result(const Variable& input) {
  if (!input.requires_grad()) return input;
  const Function operation("input", {input});
  return operation.record(input.value(), {}, [](Backward& pass) { pass.add(0, pass.dense_grad()); });
}

// Computes the function with a tape of its own, and walks it: gradients of parameters are added to them, as on the tape
// outside; those of the inputs are returned.
std::vector<Tensor> gradients_of(const Call& call, Backward& pass) {
  const RecordingScope recording;
  const NameScopesRestored names(call.names);
  std::vector<Variable> inputs(call.defined.size());
  std::size_t saved = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (call.defined[i]) inputs[i] = Variable(pass.saved(saved++), pass.wants(i));
  std::vector<Variable> results;
  for (const Variable& input : inputs) results.push_back(as_result(input));
  Variable result;
  {
    const AutocastScope precision(call.autocast);
    const SecondCall second(call.first);
    const ContextsRestored contexts(call.contexts);
    result = call.function(results);
  }
  if (result.shape() != pass.grad().shape() || result.dtype() != pass.grad().dtype())
    throw make_error(Errc::usage, "checkpoint: the function gave {} of shape {} first and {} of shape {} again",
                     name_of(pass.grad().dtype()), to_string(pass.grad().shape()), name_of(result.dtype()),
                     to_string(result.shape()));
  if (result.requires_grad()) run_inner_backward({{Access::edge(result), pass.grad()}});
  std::vector<Tensor> gradients;
  for (const Variable& input : inputs) gradients.push_back(input.grad());
  return gradients;
}

}  // namespace

FirstCall::FirstCall(Recomputation& call) : before_(std::exchange(first_call, &call)) {}
FirstCall::~FirstCall() {
  first_call = before_;
}

SecondCall::SecondCall(const Recomputation& call)
    : call_before_(std::exchange(second_call, &call)),
      next_before_(std::exchange(next_stream, 0)),
      product_before_(std::exchange(next_product, 0)) {}
SecondCall::~SecondCall() {
  second_call = call_before_;
  next_stream = next_before_;
  next_product = product_before_;
}

bool record_product() {
  if (first_call) ++first_call->products;
  return !second_call || next_product++ < second_call->needed || anomaly_detection();
}

void record_saved(bool is_product, const Tensor& value, const std::vector<Tensor>& saved) {
  if (!first_call || saved.empty()) return;
  const auto is_value = [&](const Tensor& tensor) { return tensor.storage() == value.storage(); };
  const bool needs_own = !is_product || std::any_of(saved.begin(), saved.end(), is_value);
  first_call->needed = first_call->products - (needs_own ? 0 : 1);
}

void record_inputs(const char* operation, const std::vector<Variable>& inputs) {
  if (!first_call) return;
  for (const Variable& input : inputs) {
    const Edge edge = Access::edge(input);
    if (edge.leaf) record_leaf(*first_call, input);
    if (edge.node)
      throw make_error(
          Errc::usage,
          "checkpoint: {} uses the result of {}, which was computed outside of the function and is none of "
          "its inputs",
          operation, edge.node->description());
  }
}

std::uint64_t draw_stream(Generator& generator) {
  const std::uint64_t stream = second_call && next_stream < second_call->streams.size()
                                   ? second_call->streams[next_stream++]
                                   : generator.next_u64();
  if (first_call) first_call->streams.push_back(stream);
  return stream;
}

bool is_recomputing() {
  return second_call != nullptr;
}

namespace {

// The leaves are among the edges, so that the pass knows when their gradients are complete.
Variable recorded(const Variable& first_result, const std::vector<Variable>& inputs, Call call) {
  std::vector<Tensor> saved;
  std::vector<Edge> edges;
  for (const Variable& input : inputs) {
    call.defined.push_back(input.defined());
    if (input.defined()) saved.push_back(input.value());
    edges.push_back(Access::edge(input));
  }
  for (const Variable& leaf : call.first.leaves) edges.push_back(Access::edge(leaf));
  call.first.leaves.clear();
  SavedBytesScope::note(inputs, saved);
  Variable result = first_result.detach();
  place_like(first_result, result);
  if (std::none_of(edges.begin(), edges.end(), [](const Edge& edge) { return edge.leaf || edge.node; })) return result;
  auto node = std::make_shared<Node>("checkpoint", std::move(edges), std::move(saved),
                                     [call = std::move(call)](Backward& pass) {
                                       std::vector<Tensor> gradients = gradients_of(call, pass);
                                       for (std::size_t i = 0; i < gradients.size(); ++i)
                                         if (gradients[i].defined()) pass.add(i, std::move(gradients[i]));
                                     });
  node->divisible = false;  // its pass adds to the leaves directly
  if (anomaly_detection() || operation_observer()) node->scope = current_scope();
  Access::set_producer(result, std::move(node));
  return result;
}

}  // namespace

Variable checkpoint(CheckpointFunction function, const std::vector<Variable>& inputs) {
  if (!grad_enabled()) return function(inputs);
  Call call{.function = std::move(function),
            .first = {},
            .defined = {},
            .names = name_scopes(),
            .autocast = autocast_dtype(),
            .contexts = ContextScope::makers()};
  Variable result;
  {
    const NoGradScope no_grad;
    const FirstCall first(call.first);
    result = call.function(detached(inputs));
  }
  return recorded(result, inputs, std::move(call));
}

ContextScope::ContextScope() : before_(std::exchange(innermost, this)) {}
ContextScope::~ContextScope() {
  innermost = before_;
}

std::vector<ContextScope::Maker> ContextScope::makers() {
  std::vector<Maker> all;
  for (const ContextScope* scope = innermost; scope; scope = scope->before_) all.push_back(scope->maker());
  std::reverse(all.begin(), all.end());
  return all;
}

}  // namespace ddprun::autograd
