#include "worker/autograd/node.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "worker/autograd/interruption.h"
#include "worker/autograd/operation_observer.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/memory_owner.h"

namespace ddprun::autograd {
namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> next = 0;  // that of the process: a tape may move to another thread
  return next++;
}

std::vector<std::uint64_t> versions_of(const std::vector<Tensor>& tensors) {
  std::vector<std::uint64_t> versions;
  versions.reserve(tensors.size());
  for (const Tensor& tensor : tensors) versions.push_back(tensor.version());
  return versions;
}

}  // namespace

Node::Node(const char* name_, std::vector<Edge> edges_, std::vector<Tensor> saved_, BackwardFunction function_)
    : number(next_number()),
      name(name_),
      edges(std::move(edges_)),
      saved(std::move(saved_)),
      versions(versions_of(saved)),
      function(std::move(function_)) {}

// A long chain would otherwise be destroyed by an equally deep recursion: this takes over the edges of nodes that end
// with this one.
Node::~Node() {
  std::vector<Edge> pending = std::move(edges);
  while (!pending.empty()) {
    Edge edge = std::move(pending.back());
    pending.pop_back();
    if (edge.node && edge.node.use_count() == 1) {
      std::move(edge.node->edges.begin(), edge.node->edges.end(), std::back_inserter(pending));
      edge.node->edges.clear();
    }
  }
}

std::string Node::description() const {
  return describe_operation(name, scope);
}

Edge Access::edge(const Variable& variable) {
  if (!variable.requires_grad()) return {};
  const auto& node = variable.node_;
  return node->producer ? Edge{nullptr, node->producer} : Edge{node, nullptr};
}

void Access::set_producer(Variable& variable, std::shared_ptr<Node> node) {
  variable.node_->producer = std::move(node);
}

void reads_gradient_in(const Variable& result, DType dtype) {
  if (const Edge edge = Access::edge(result); edge.node) edge.node->copy_dtype = dtype;
}

void VariableNode::clear_if_pending() {
  if (!clear_pending) return;  // written only when set: several threads may read a gradient
  clear_pending = false;
  storage.fill(0);
}

void VariableNode::make_storage_if_needed() {
  if (make_storage && !gradient.defined() && !storage.defined()) storage = make_storage();
}

void VariableNode::accumulate(Tensor contribution) {
  make_storage_if_needed();
  if (std::exchange(clear_pending, false)) {
    storage.copy_from(contribution);
  } else if (gradient.defined()) {
    kernels::add_in_place(gradient, contribution);
  } else if (storage.defined()) {
    storage.copy_from(contribution);
    gradient = storage;
  } else {
    gradient = contribution.sole_owner() ? std::move(contribution) : contribution.clone();
  }
}

Backward::Target VariableNode::target() {
  make_storage_if_needed();
  if (gradient.defined()) return {gradient, !std::exchange(clear_pending, false)};
  const MemoryScope scope(MemoryOwner::gradients);
  gradient = storage.defined() ? storage : Tensor::empty(value.shape(), value.dtype(), value.device());
  return {gradient, false};
}

void VariableNode::run_hooks() {
  clear_if_pending();  // an operation need not give an input a gradient
  for (const auto& [number, hook] : hooks) hook();
}

namespace {

struct PassPlan {
  std::vector<std::shared_ptr<Node>> nodes;               // in the order of the pass
  std::unordered_map<VariableNode*, std::size_t> awaits;  // the number of uses of each leaf still to come
};

PassPlan plan_from(const std::vector<Root>& roots) {
  PassPlan plan;
  std::unordered_set<Node*> seen;
  const auto visit = [&](const Edge& edge) {
    if (edge.leaf) ++plan.awaits[edge.leaf.get()];
    if (edge.node && seen.insert(edge.node.get()).second) plan.nodes.push_back(edge.node);
  };
  for (const Root& root : roots) visit(root.edge);
  for (std::size_t next = 0; next < plan.nodes.size(); ++next) {
    Node& node = *plan.nodes[next];
    if (!node.function) {
      throw make_error(
          Errc::usage,
          "backward: this tape was already walked, and freed, by an earlier backward(); compute the loss again");
    }
    // The loop holds no reference into the vector while visit() appends to it.
    for (const Edge& edge : node.edges) visit(edge);
  }
  std::sort(plan.nodes.begin(), plan.nodes.end(), [](const auto& a, const auto& b) { return a->number > b->number; });
  return plan;
}

// Several inputs may have received the same tensor, so only a sole owner adds in place.
void add_to_node(Node& node, Tensor gradient, Tensor copy) {
  Tensor& sum = node.gradient;
  if (!sum.defined()) {
    sum = std::move(gradient);
    node.gradient_copy = std::move(copy);
    return;
  }
  node.gradient_copy = Tensor();
  if (!sum.sole_owner() || !sum.is_dense()) sum = sum.clone();
  kernels::add_in_place(sum, gradient);
}

void add_to(const Edge& edge, Tensor gradient, Tensor copy = {}) {
  if (edge.leaf) {
    edge.leaf->accumulate(gradient.is_contiguous() ? std::move(gradient) : gradient.contiguous());
  } else if (edge.node) {
    add_to_node(*edge.node, std::move(gradient), std::move(copy));
  }
}

// The inputs of a node that get their gradient in this run of its function; empty means all.
using Inputs = std::vector<bool>;

class Step final : public Backward {
 public:
  explicit Step(Node& node, const Inputs& inputs) : node_(node), inputs_(inputs) {}

  const Tensor& grad() const override {
    if (!node_.gradient.is_contiguous()) node_.gradient = node_.gradient.contiguous();
    return node_.gradient;
  }
  const Tensor& dense_grad() const override {
    if (!node_.gradient.is_dense()) node_.gradient = node_.gradient.contiguous();
    return node_.gradient;
  }
  bool wants(std::size_t input) const override {
    return takes(input) && (node_.edges[input].leaf || node_.edges[input].node);
  }

  const Tensor& saved(std::size_t index) const override {
    const Tensor& tensor = node_.saved[index];
    if (tensor.version() != node_.versions[index]) {
      throw make_error(Errc::usage, "backward: a tensor of shape {} that {} had saved was changed in place",
                       to_string(tensor.shape()), node_.description());
    }
    return tensor;
  }

  void add(std::size_t input, Tensor gradient) override { add(input, std::move(gradient), Tensor()); }
  void add(std::size_t input, Tensor gradient, Tensor copy) override {
    if (!takes(input)) return;
    if (anomaly_detection()) check_finite(gradient, node_.description(), input_name(input));
    add_to(node_.edges[input], std::move(gradient), std::move(copy));
  }

  Tensor take(std::size_t input) override {
    if (!takes(input) || !node_.edges[input].node) return {};
    Node& node = *node_.edges[input].node;
    node.gradient_copy = Tensor();
    return std::exchange(node.gradient, Tensor());
  }
  std::optional<DType> copy_dtype(std::size_t input) const override {
    const Edge& edge = node_.edges[input];
    return takes(input) && edge.node ? edge.node->copy_dtype : std::nullopt;
  }
  Tensor grad_in(DType dtype) const override {
    const Tensor& copy = node_.gradient_copy;
    return copy.defined() && copy.dtype() == dtype ? copy : grad().to(dtype);
  }

  Target target(std::size_t input) override {
    if (anomaly_detection() || !takes(input)) return {};
    const Edge& edge = node_.edges[input];
    if (edge.leaf) return edge.leaf->target();
    // For a weight cast to 16 bits: kernels add 16 bits to float32, which loses less than a cast of the gradient.
    if (edge.node && edge.node->narrows_float32 && edge.node->edges[0].leaf) return edge.node->edges[0].leaf->target();
    return {};
  }

 private:
  bool takes(std::size_t input) const { return inputs_.empty() || inputs_[input]; }
  static std::string input_name(std::size_t input) { return fmt::format("the gradient of its input {}", input); }

  Node& node_;
  const Inputs& inputs_;
};

using Actions = std::vector<std::function<void()>>;

// The actions of the pass that this thread walks; null outside of one.
thread_local Actions* end_actions = nullptr;

class PassScope {
 public:
  explicit PassScope(Actions& actions) : outer_(std::exchange(end_actions, &actions)) {}
  ~PassScope() { end_actions = outer_; }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  Actions* outer_;
};

// Reports a node's function to the thread's observer.
class NodeObservation {
 public:
  explicit NodeObservation(const Node& node) : observer_(operation_observer()) {
    if (observer_) begin(node);
  }
  ~NodeObservation() {
    if (observer_) observer_->backward_ends();
  }
  NodeObservation(const NodeObservation&) = delete;
  NodeObservation& operator=(const NodeObservation&) = delete;

 private:
  void begin(const Node& node) {
    int wanted = 0;
    for (std::size_t input = 0; input < std::min<std::size_t>(2, node.edges.size()); ++input)
      if (node.edges[input].leaf || node.edges[input].node) ++wanted;
    observer_->backward_begins(node.name, node.scope, node.cost, wanted);
  }

  OperationObserver* observer_;
};

void run_function(Node& node, const Inputs& inputs) {
  // An operation may give an input no gradient at all; then there is nothing to pass on either.
  if (!node.gradient.defined()) return;
  check_interruption();
  const NodeObservation observation(node);
  Step step(node, inputs);
  node.function(step);
}

void run_node(Node& node, const Inputs& inputs = {}) {
  run_function(node, inputs);
  node.function = nullptr;
  node.gradient = Tensor();
  node.gradient_copy = Tensor();
  node.saved.clear();
}

// Calls leaf_complete(leaf) once all gradients of a leaf have arrived.
template <class LeafComplete>
void walk(std::vector<Root> roots, LeafComplete leaf_complete) {
  PassPlan plan = plan_from(roots);
  const auto use_ended = [&](const Edge& edge) {
    if (edge.leaf && --plan.awaits[edge.leaf.get()] == 0) leaf_complete(*edge.leaf);
  };
  for (Root& root : roots) {
    add_to(root.edge, std::move(root.gradient));
    use_ended(root.edge);
  }
  roots.clear();
  for (std::shared_ptr<Node>& node : plan.nodes) {
    run_node(*node);
    const std::vector<Edge> edges = std::move(node->edges);
    node->edges.clear();
    node.reset();
    for (const Edge& edge : edges) use_ended(edge);
  }
}

}  // namespace

void run_backward(std::vector<Root> roots) {
  Actions actions;
  const PassScope scope(actions);
  walk(std::move(roots), [](VariableNode& leaf) { leaf.run_hooks(); });
  for (const auto& action : actions) action();
}

void run_inner_backward(std::vector<Root> roots) {
  walk(std::move(roots), [](const VariableNode&) {});
}

struct DividedBackward::State {
  struct Part {
    std::shared_ptr<Node> node;
    Inputs first;          // the edges that lead to the input
    bool is_done = false;  // true if the first part has done it
  };

  State(std::vector<Root> roots, const Variable& input);
  void find_edges(const VariableNode* input);

  PassPlan plan;
  std::vector<Part> parts;
  std::vector<Edge> root_edges;
};

DividedBackward::State::State(std::vector<Root> roots, const Variable& input) : plan(plan_from(roots)) {
  for (const auto& node : plan.nodes) parts.push_back({node, {}});
  find_edges(Access::edge(input).leaf.get());
  for (Root& root : roots) {
    add_to(root.edge, std::move(root.gradient));
    root_edges.push_back(root.edge);
  }
}

void DividedBackward::State::find_edges(const VariableNode* input) {
  std::unordered_set<const Node*> leading;
  for (std::size_t i = parts.size(); i-- > 0;) {
    Part& part = parts[i];
    for (const Edge& edge : part.node->edges)
      part.first.push_back((edge.leaf && edge.leaf.get() == input) || (edge.node && leading.contains(edge.node.get())));
    if (std::ranges::count(part.first, true) > 0) leading.insert(part.node.get());
  }
}

DividedBackward::DividedBackward(std::vector<Root> roots, const Variable& input)
    : state_(std::make_unique<State>(std::move(roots), input)) {
  for (auto& [node, first, is_done] : state_->parts) {
    if (std::ranges::count(first, true) == 0) continue;
    const auto has_gradient = [](const Edge& edge) { return edge.leaf || edge.node; };
    is_done = !node->divisible || std::ranges::count(first, true) == std::ranges::count_if(node->edges, has_gradient);
    if (is_done)
      run_node(*node);
    else
      run_function(*node, first);
  }
}

DividedBackward::~DividedBackward() = default;
DividedBackward::DividedBackward(DividedBackward&&) noexcept = default;
DividedBackward& DividedBackward::operator=(DividedBackward&&) noexcept = default;

void DividedBackward::finish() {
  Actions actions;
  const PassScope scope(actions);
  auto& awaits = state_->plan.awaits;
  const auto use_ended = [&](const Edge& edge) {
    if (edge.leaf && --awaits[edge.leaf.get()] == 0) edge.leaf->run_hooks();
  };
  state_->plan.nodes.clear();
  for (const Edge& edge : state_->root_edges) use_ended(edge);
  for (auto& [node, first, is_done] : state_->parts) {
    first.flip();
    if (!is_done) run_node(*node, first);
    const std::vector<Edge> edges = std::move(node->edges);
    node->edges.clear();
    node.reset();
    for (const Edge& edge : edges) use_ended(edge);
  }
  for (const auto& action : actions) action();
}

}  // namespace ddprun::autograd

namespace ddprun {

void at_end_of_backward(std::function<void()> action) {
  if (!autograd::end_actions) throw Error(Errc::usage, "at_end_of_backward: no backward pass is under way");
  autograd::end_actions->push_back(std::move(action));
}

}  // namespace ddprun
