#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/tensor/tensor.h"

namespace ddprun::optim {

// Gives an optimizer what it needs of other processes if each has parts of the parameters: the norms of whole tensors
// (lamb, lars), or whole matrices (muon).
//
// Threads: one at a time. add_up() and transform() are collective: all processes that have parts of the same model call
// them in the same order. Errors: those of the exchange.
class TensorParts {
 public:
  virtual ~TensorParts() = default;

  virtual Shape whole_shape(const std::string& parameter) const = 0;
  // numbers: as many for each of these parameters, of the part of it here, by parameter. Replaces them by their sums
  // over the processes that have the other parts.
  virtual void add_up(const std::vector<std::string>& parameters, std::span<double> numbers) = 0;
  // parts: those that are here of whole tensors, under the names and in the shapes of parameters. Changes each whole
  // tensor by the function, in one of the processes, or in all that have it whole. group: number of the parameter group
  // that they belong to, of which all calls have the same ones.
  virtual void transform(std::size_t group, const std::vector<std::pair<std::string, Tensor>>& parts,
                         const std::function<void(Tensor& whole)>& function) = 0;
};

}  // namespace ddprun::optim
