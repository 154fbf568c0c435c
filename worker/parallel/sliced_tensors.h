#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/nn/module.h"
#include "worker/parallel/slicing.h"

namespace ddprun {

// Parameters of which each rank of a group has a slice, such as the columns of a weight, or some of its experts.
// Parameters that are not sliced are whole at each rank.
//
// Ownership: the group outlives this object. Threads: one at a time. Errors: those of the group.
class SlicedTensors {
 public:
  explicit SlicedTensors(ProcessGroup& group) : group_(group) {}

  // Replaces a parameter of a whole model by this rank's slice, in place, so that all modules that have it see it.
  // REQUIRES: the dimension is a multiple of slicing.pieces * ranks.
  void divide(nn::Module& model, const std::string& parameter, Slicing slicing);

  ProcessGroup& group() const { return group_; }
  // Returns the parameters of which ranks have slices.
  std::vector<std::string> names() const;
  bool divides(const std::string& parameter) const { return slicings_.contains(parameter); }
  // Returns null if the parameter is whole.
  const Slicing* slicing(const std::string& parameter) const {
    const auto found = slicings_.find(parameter);
    return found == slicings_.end() ? nullptr : &found->second;
  }
  // Returns a parameter's whole value, at every rank. Collective for those that are divided.
  Tensor whole(const std::string& parameter, const Tensor& own) const;

 private:
  ProcessGroup& group_;
  std::map<std::string, Slicing> slicings_;  // by parameter
};

}  // namespace ddprun
