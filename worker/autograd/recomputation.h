#pragma once

#include <cstdint>
#include <vector>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/tensor/random.h"

// What operations tell checkpoint() about the function that it runs.
namespace ddprun::autograd {

// Of one call of a checkpointed function.
struct Recomputation {
  std::vector<Variable> leaves;        // that require gradients, each once
  std::vector<std::uint64_t> streams;  // of random numbers, in the order in which they were drawn
  std::size_t products = 0;            // so far
  std::size_t needed = 0;              // the backward pass needs the values of no product from this one on
};

// The first call: operations add to it. Replaces the one around it.
class FirstCall {
 public:
  explicit FirstCall(Recomputation& call);
  ~FirstCall();
  FirstCall(const FirstCall&) = delete;
  FirstCall& operator=(const FirstCall&) = delete;

 private:
  Recomputation* before_;
};

// The second call: random numbers are those of the first.
class SecondCall {
 public:
  explicit SecondCall(const Recomputation& call);
  ~SecondCall();
  SecondCall(const SecondCall&) = delete;
  SecondCall& operator=(const SecondCall&) = delete;

 private:
  const Recomputation* call_before_;
  std::size_t next_before_, product_before_;
};

// By every operation, for its inputs. Throws Errc::usage for one that the function should have had as an input.
void note_inputs(const char* operation, const std::vector<Variable>& inputs);

// By every product, before it is computed: false where a second call does not need its value.
bool note_product();
// By every operation: what it keeps for the backward pass. Keeping the own value means that it is needed.
void note_saved(bool is_product, const Tensor& value, const std::vector<Tensor>& saved);

// A stream of random numbers: the generator's next, or in a second call that of the first.
std::uint64_t draw_stream(Generator& generator);

}  // namespace ddprun::autograd
