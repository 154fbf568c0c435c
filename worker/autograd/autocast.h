#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "worker/autograd/variable.h"

// Mixed precision, like torch.autocast: parameters stay float32, operations choose the type in which they compute.
namespace ddprun::autograd {

// The treatment of the types of an operation's inputs under autocast. float64 and types that are not floating-point are
// left as they are.
enum class CastClass : std::uint8_t {
  lower,    // computes in the scope's 16-bit type: matrix products, convolutions, attention
  float32,  // computes in float32, where 16 bits lose too much: losses, softmax, norms, sums, exponentials
  widest,   // computes in the widest type among its inputs
  keep,     // computes in the type of its input
};

class WeightCache;

// While one exists on a thread, operations there cast their inputs by their class. The 16-bit copies of leaves that
// require gradients are cached for the outermost scope's lifetime, and made again when the leaf has changed: one scope
// around an optimizer step casts each weight once. Gradients of casts are float32. Scopes nest; float32 switches
// autocast off within one.
//
// Ownership: the cache keeps the leaves' memory alive.
// Threads: an object is used and destroyed by the thread that made it.
// Errors: Errc::usage for a type other than float16, bfloat16 and float32.
class AutocastScope {
 public:
  explicit AutocastScope(DType dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  DType dtype_before_;
  WeightCache* cache_before_;
  std::unique_ptr<WeightCache> cache_;  // set in an outermost scope only
};

// Returns the 16-bit type of this thread's scope, or float32 if autocast is off.
DType autocast_dtype();

// Casts the inputs of an operation of this class where autocast says so. Undefined ones stay undefined.
void autocast(CastClass kind, std::span<Variable> inputs);
template <class... More>
std::array<Variable, 2 + sizeof...(More)> autocast(CastClass kind, const Variable& first, const Variable& second,
                                                   const More&... more) {
  std::array<Variable, 2 + sizeof...(More)> all{first, second, more...};
  autocast(kind, all);
  return all;
}
Variable autocast(CastClass kind, const Variable& input);
// Casts an operand that has no gradient.
Tensor autocast(CastClass kind, const Tensor& operand);

}  // namespace ddprun::autograd

namespace ddprun {

// Returns the values in another floating-point type; the gradient is cast back. Returns input if nothing has to change.
Variable cast(const Variable& input, DType dtype);

}  // namespace ddprun
