#pragma once

#include <cstdint>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/tensor/random.h"

// The facts that operations report to checkpoint() about the function that it runs.
namespace ddprun::autograd {

// The record of one call of a checkpointed function.
struct Recomputation {
  std::vector<Variable> leaves;        // those that require gradients, each once
  std::vector<std::uint64_t> streams;  // those of random numbers, in the order in which they were drawn
  std::size_t products = 0;            // the number so far
  std::size_t needed = 0;              // the backward pass needs the values of no product from this index on
};

// The scope of the first call: operations add to its record. Replaces the one around it.
class FirstCall {
 public:
  explicit FirstCall(Recomputation& call);
  ~FirstCall();
  FirstCall(const FirstCall&) = delete;
  FirstCall& operator=(const FirstCall&) = delete;

 private:
  Recomputation* before_;
};

// The scope of the second call: random numbers are those of the first.
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

// Called by every operation, for its inputs. Throws Errc::usage for one that the function should have had as an input.
void record_inputs(const char* operation, const std::vector<Variable>& inputs);

// Called by every product, before it is computed. Returns false if a second call does not need its value.
bool record_product();
// Called by every operation with what it keeps for the backward pass. If it keeps its own value, that value is needed.
void record_saved(bool is_product, const Tensor& value, const std::vector<Tensor>& saved);

// Returns a stream of random numbers: the generator's next, or in a second call that of the first.
std::uint64_t draw_stream(Generator& generator);

}  // namespace ddprun::autograd
