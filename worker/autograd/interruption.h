#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace ddprun::autograd {

// While one exists on a thread, each operation there calls the check before it computes, in forward and backward passes
// alike. A check that throws ends a pass whose result nobody can use, such as one for a step that other ranks have to
// repeat: gradients are incomplete then, and tensors that the pass changes in place may be changed or not.
//
// Scopes of a thread nest; the innermost one's check is called. Without one, an operation tests a pointer of its
// thread. Errors: an operation, or Variable::backward(), throws what the check throws.
class InterruptionScope {
 public:
  explicit InterruptionScope(std::function<void()> check);
  ~InterruptionScope();
  InterruptionScope(const InterruptionScope&) = delete;
  InterruptionScope& operator=(const InterruptionScope&) = delete;

 private:
  const std::function<void()> check_;
  const std::function<void()>* const before_;
};

bool may_be_interrupted();  // whether this thread has a scope
void check_interruption();  // calls the check of the innermost one

// A long operation: calls compute(first, count) once for all samples, or, where it may be interrupted, for up to four
// parts of them with a check before each but the first. at_least: the samples of a part that keep all threads busy.
template <class Compute>
void compute_in_parts(std::int64_t samples, std::int64_t at_least, Compute compute) {
  constexpr std::int64_t most_parts = 4;
  const std::int64_t of_part =
      may_be_interrupted() ? std::max((samples + most_parts - 1) / most_parts, at_least) : samples;
  std::int64_t first = 0;
  do {
    if (first > 0) check_interruption();
    const std::int64_t count = std::min(of_part, samples - first);
    compute(first, count);
    first += count;
  } while (first < samples);
}

}  // namespace ddprun::autograd
