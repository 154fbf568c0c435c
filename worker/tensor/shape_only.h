#pragma once

#include <cstddef>
#include <memory>

namespace ddprun {

// While one lives, its thread computes shapes and leaves out values, so that what a step takes follows from the code
// that makes it, also for a model that no machine here has the memory for (PyTorch: tensors on the meta device).
//
// New tensors of the CPU have addresses, and no memory until something writes them. Kernels (kernels.h) make their
// results and leave out the arithmetic, and so do the loops of optimizers. Indices (int64) and small tensors, such as
// counters, flags and losses, can be read as always: copies and fills of them are made, and where the result of another
// kernel is that small, it is zero or any number. Memory is counted as always.
//
// Threads: the scope is its thread's. Scopes do not nest. Tensors made in it may outlive it.
// Errors: an allocation throws what reserve_address_space() throws.
class ShapeOnlyScope {
 public:
  ShapeOnlyScope();
  ~ShapeOnlyScope();
  ShapeOnlyScope(const ShapeOnlyScope&) = delete;
  ShapeOnlyScope& operator=(const ShapeOnlyScope&) = delete;
};

// Returns whether the calling thread is in such a scope.
bool shapes_only();

// Returns the floating-point operations of the products, convolutions and attentions that the thread's scope has left
// out so far: those that grow faster than their operands.
double operations_left_out();
void add_operations_left_out(double count);

// For Storage: returns addresses of the thread's scope, aligned like a storage's. REQUIRES: shapes_only(), a multiple
// of storage_alignment.
std::shared_ptr<void> reserve_block(std::size_t bytes);

}  // namespace ddprun
