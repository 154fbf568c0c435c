#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/reducer/bucketing.h"

namespace ddprun {

// A module whose calls need the parameters in some buckets.
struct ParameterUser {
  std::string path;
  nn::Module* module = nullptr;
  std::vector<std::size_t> buckets;
};

// The units in which parameters are gathered and freed, and their gradients reduced: a bucket for each block of the
// model and for each module outside of blocks that has parameters of its own (nn::Module::parameter_users()), in the
// reverse order of registration, in which gradients become ready. A tied parameter is in the unit of the first module
// that has it; all that have it use that unit. A module with parameters of several types has a bucket for each.
struct ShardUnits {
  std::vector<Bucket> buckets;
  std::vector<ParameterUser> users;  // in the order of registration
};

// parameters: those of the model that are divided; others stay whole. The model outlives the result, which points to
// its modules. The result is the same at all ranks with the same model; nothing is communicated. Errors: none.
ShardUnits plan_units(nn::Module& model, const std::vector<std::pair<std::string, Variable>>& parameters);

}  // namespace ddprun
