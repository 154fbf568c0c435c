#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "ddprun/worker/autograd/variable.h"

// Mixed precision, as torch.autocast: parameters stay float32, operations choose the type in which they compute.
namespace ddprun::autograd {

// What an operation does with the types of its inputs under autocast. float64 and types that are not floating-point are
// left as they are.
enum class CastClass : std::uint8_t {
  lower,    // computes in the scope's 16-bit type: matrix products, convolutions, attention
  float32,  // computes in float32, where 16 bits lose too much: losses, softmax, norms, sums, exponentials
  widest,   // several inputs: in the widest type among them
  keep,     // in the type of its input
};

class WeightCache;

// While one exists on a thread, operations there cast their inputs by their class. The 16-bit copies of leaves that
// require gradients are cached for the outermost scope's lifetime, and made again when the leaf has changed: one scope
// around an optimizer step casts each weight once. Gradients of casts are float32. Scopes nest; float32 switches
// autocast off within one.
//
// Ownership: the cache keeps the leaves' memory alive.
// Threads: of the thread that made it, which also ends it.
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
  std::unique_ptr<WeightCache> cache_;  // of an outermost scope
};

// The 16-bit type of this thread's scope; float32: autocast is off.
DType autocast_dtype();

// The inputs of an operation of this class, cast where autocast says so. Undefined ones stay undefined.
void autocast(CastClass kind, std::span<Variable> inputs);
template <class... More>
std::array<Variable, 2 + sizeof...(More)> autocast(CastClass kind, const Variable& first, const Variable& second,
                                                   const More&... more) {
  std::array<Variable, 2 + sizeof...(More)> all{first, second, more...};
  autocast(kind, all);
  return all;
}
Variable autocast(CastClass kind, const Variable& input);
// Of an operand that has no gradient.
Tensor autocast(CastClass kind, const Tensor& operand);

}  // namespace ddprun::autograd

namespace ddprun {

// The values in another floating-point type; the gradient is cast back. Itself where nothing has to change.
Variable cast(const Variable& input, DType dtype);

}  // namespace ddprun
