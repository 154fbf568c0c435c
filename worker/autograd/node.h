#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ddprun/worker/autograd/tape.h"

// The tape's own structures.
namespace ddprun::autograd {

class Node;

// What all handles to a leaf variable share.
struct Leaf {
  Shape shape;
  DType dtype;
  Tensor gradient;  // on the storage, where one was set
  Tensor storage;
  bool lazy = false;  // the gradient may be undefined although there is a storage, which is zero then
  std::function<void()> on_ready;

  void accumulate(Tensor contribution);  // of this shape; takes over its memory where nobody else holds it
};

// Where the gradient of an input goes: to a leaf, to the operation that made it, or nowhere.
struct Edge {
  std::shared_ptr<Leaf> leaf;
  std::shared_ptr<Node> node;
};

// One recorded operation. Its number grows with creation, so descending numbers are an order in which every node comes
// after all that use its result: the order of the backward pass.
class Node {
 public:
  Node(std::uint64_t number, std::vector<Edge> edges, BackwardFunction function);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const std::uint64_t number;
  std::vector<Edge> edges;
  BackwardFunction function;  // empty once it has run
  Tensor gradient;            // of the result, while a pass collects it
};

// Runs the pass that starts at root, whose gradient is given.
void run_backward(const std::shared_ptr<Node>& root, Tensor gradient);

}  // namespace ddprun::autograd
