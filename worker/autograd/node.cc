#include "ddprun/worker/autograd/node.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::autograd {

Node::Node(std::uint64_t number_, std::vector<Edge> edges_, BackwardFunction function_)
    : number(number_), edges(std::move(edges_)), function(std::move(function_)) {}

// A long chain would otherwise be destroyed by as deep a recursion: take over the edges of nodes that end with this
// one.
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

void Leaf::accumulate(Tensor contribution) {
  if (gradient.defined()) {
    kernels::add_in_place(gradient, contribution);
  } else if (storage.defined()) {
    storage.copy_from(contribution);
    gradient = storage;
  } else {
    gradient = contribution.sole_owner() ? std::move(contribution) : contribution.clone();
  }
}

namespace {

struct Plan {
  std::vector<std::shared_ptr<Node>> nodes;       // in the order of the pass
  std::unordered_map<Leaf*, std::size_t> awaits;  // uses of each leaf still to come
};

Plan plan_from(const std::shared_ptr<Node>& root) {
  Plan plan;
  std::unordered_set<Node*> seen{root.get()};
  plan.nodes.push_back(root);
  for (std::size_t next = 0; next < plan.nodes.size(); ++next) {
    Node& node = *plan.nodes[next];
    if (!node.function) {
      throw make_error(
          Errc::usage,
          "backward: this tape was already walked, and freed, by an earlier backward(); compute the loss again");
    }
    // Nodes are pushed below while this loop holds no reference into the vector.
    for (const Edge& edge : node.edges) {
      if (edge.leaf) ++plan.awaits[edge.leaf.get()];
      if (edge.node && seen.insert(edge.node.get()).second) plan.nodes.push_back(edge.node);
    }
  }
  std::sort(plan.nodes.begin(), plan.nodes.end(), [](const auto& a, const auto& b) { return a->number > b->number; });
  return plan;
}

class Step final : public Backward {
 public:
  explicit Step(Node& node) : node_(node) {}

  const Tensor& grad() const override { return node_.gradient; }
  bool wants(std::size_t input) const override { return node_.edges[input].leaf || node_.edges[input].node; }

  void add(std::size_t input, Tensor gradient) override {
    Edge& edge = node_.edges[input];
    if (edge.leaf) {
      edge.leaf->accumulate(std::move(gradient));
    } else if (edge.node) {
      add_to_node(edge.node->gradient, std::move(gradient));
    }
  }

  Tensor accumulator(std::size_t input) override {
    const Edge& edge = node_.edges[input];
    return edge.leaf ? edge.leaf->gradient : Tensor();
  }

 private:
  // Several inputs may have been handed one and the same tensor, so only a sole owner adds in place.
  static void add_to_node(Tensor& sum, Tensor gradient) {
    if (!sum.defined()) {
      sum = std::move(gradient);
      return;
    }
    if (!sum.sole_owner()) sum = sum.clone();
    kernels::add_in_place(sum, gradient);
  }

  Node& node_;
};

using Actions = std::vector<std::function<void()>>;

// Of the pass that this thread walks; none outside.
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

}  // namespace

void run_backward(const std::shared_ptr<Node>& root, Tensor gradient) {
  Plan plan = plan_from(root);
  Actions actions;
  const PassScope scope(actions);
  root->gradient = std::move(gradient);
  for (std::shared_ptr<Node>& node : plan.nodes) {
    // An operation may give an input no gradient at all; then there is nothing to pass on either.
    if (node->gradient.defined()) {
      Step step(*node);
      node->function(step);
    }
    node->function = nullptr;
    node->gradient = Tensor();
    const std::vector<Edge> edges = std::move(node->edges);
    node->edges.clear();
    node.reset();
    for (const Edge& edge : edges) {
      if (edge.leaf && --plan.awaits[edge.leaf.get()] == 0 && edge.leaf->on_ready) edge.leaf->on_ready();
    }
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
