#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/cast_place.h"
#include "worker/autograd/function.h"

// The tape's own structures.
namespace ddprun::autograd {

class Node;

// How a value lies over the ranks of a mesh: see placement_check.h.
struct ValuePlacement {
  std::string name;  // for errors
  std::set<std::string> local_over;
};

// The state that all handles to a variable share.
struct VariableNode {
  Tensor value;
  bool requires_grad = false;                       // set for leaves only
  std::shared_ptr<Node> producer;                   // the operation that made the value; null for a leaf
  std::shared_ptr<const ValuePlacement> placement;  // null: nothing is known of it

  // The members below are those of a leaf.
  Tensor gradient;  // on the storage, where one was set
  Tensor storage;
  std::function<Tensor()> make_storage;  // set where the storage is made when it is needed
  bool lazy = false;      // the gradient may be undefined although there is a storage, which is zero then
  bool borrowed = false;  // the storage is that of other variables
  // The gradient counts as zero although its memory, the storage's, was not cleared: the first contribution overwrites
  // it.
  bool clear_pending = false;
  std::vector<std::pair<std::uint64_t, std::function<void()>>> hooks;  // number, function
  std::uint64_t next_hook = 1;
  std::shared_ptr<CastPlace> cast_place;  // null: the cache of autocast has the copy

  void accumulate(Tensor contribution);  // of this shape; its memory is taken over if it is not shared
  // Returns where to write a contribution instead of calling accumulate(): memory of the leaf's type, whatever type the
  // contribution was computed in.
  Backward::Target target();
  void make_storage_if_needed();
  // Clears the memory of a gradient that was not overwritten.
  void clear_if_pending();
  void run_hooks();
};

// The destination of the gradient of an input: a leaf, the operation that made it, or nothing.
struct Edge {
  std::shared_ptr<VariableNode> leaf;
  std::shared_ptr<Node> node;
};

// One recorded operation. Its number grows with creation, so descending numbers are an order in which every node comes
// after all that use its result: the order of the backward pass.
class Node {
 public:
  Node(const char* name, std::vector<Edge> edges, std::vector<Tensor> saved, BackwardFunction function);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Returns a text such as "gelu in module blocks.3.mlp".
  std::string description() const;

  const std::uint64_t number;
  const char* const name;
  std::string scope;  // set in anomaly mode, and while operations are observed
  std::vector<Edge> edges;
  std::vector<Tensor> saved;
  std::vector<std::uint64_t> versions;  // those of the saved tensors
  BackwardFunction function;            // empty once it has run
  Tensor gradient;                      // that of the result, while a pass collects it
  Tensor gradient_copy;                 // the same in copy_dtype, or undefined
  std::optional<DType> copy_dtype;      // the type in which the function reads the gradient as well
  bool narrows_float32 = false;         // true for a cast to 16 bits
  bool divisible = true;                // true if it can compute some gradients without the others (wants())
  double cost = 0;                      // that of the forward pass, as an OperationObserver counts it
};

// The tape's view of a variable.
struct Access {
  // Returns where its gradient goes: an empty edge for a variable that requires none.
  static Edge edge(const Variable& variable);
  static std::weak_ptr<VariableNode> leaf(const Variable& variable) { return variable.node_; }
  static void set_producer(Variable& variable, std::shared_ptr<Node> node);
  static VariableNode& node(const Variable& variable) { return *variable.node_; }
};

struct Root {
  Edge edge;
  Tensor gradient;
};
// Runs the pass that starts at the roots.
void run_backward(std::vector<Root> roots);
// Runs a pass within a step of another one, over a tape of its own: leaves' hooks are left to the other pass.
void run_inner_backward(std::vector<Root> roots);

// A pass in two parts: first the gradient of one input, then those of all other leaves (Qi et al. 2023). In between,
// operations on the way to the input that have other inputs too keep what they saved.
class DividedBackward {
 public:
  // Runs the first part. What cannot be computed apart, such as a checkpointed function, is computed with it.
  DividedBackward(std::vector<Root> roots, const Variable& input);
  ~DividedBackward();
  DividedBackward(DividedBackward&&) noexcept;
  DividedBackward& operator=(DividedBackward&&) noexcept;
  // Runs the second part, once; leaves' hooks run in it. It throws what a hook throws.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Operations record during its lifetime, whatever scopes enclose it.
class RecordingScope {
 public:
  RecordingScope();
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  bool before_;
};

// The names of this thread's scopes, the outermost first. NameScopesRestored sets them on any thread.
using NameScopes = std::vector<const std::string*>;
const NameScopes& name_scopes();
class NameScopesRestored {
 public:
  explicit NameScopesRestored(NameScopes names);
  ~NameScopesRestored();
  NameScopesRestored(const NameScopesRestored&) = delete;
  NameScopesRestored& operator=(const NameScopesRestored&) = delete;

 private:
  NameScopes before_;
};

bool anomaly_detection();
OperationObserver* operation_observer();  // that of this thread, or null
// Throws for a value that is not finite: "linear in module fc1 produced a NaN or an infinity in ..."
void check_finite(const Tensor& value, const std::string& operation, const std::string& what);
std::string describe_operation(const char* name, const std::string& scope);

}  // namespace ddprun::autograd
