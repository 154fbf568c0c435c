#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/nn/module.h"
#include "worker/parallel/forms/stage_pass.h"
#include "worker/reducer/bucketing.h"

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

// parameters: those of the model that are sharded; others stay whole. Each of stages.shared is a unit of its own.
// sliced: parameters that other ranks shard than the rest; no bucket has some of both. The model outlives the result,
// which points to its modules. The result is the same at all ranks with the same model; nothing is communicated.
// Errors: none.
ShardUnits plan_units(nn::Module& model, const std::vector<std::pair<std::string, Variable>>& parameters,
                      const StageTensors& stages = {}, const std::vector<std::string>& sliced = {});

// Plans buckets of parameters (reducer/bucketing.h) such that none has parameters of several stages: those of later
// stages come first, as their gradients become ready first. Each of stages.shared has a bucket of its own. sliced: like
// that of plan_units().
std::vector<Bucket> plan_buckets_of_stages(const std::vector<std::pair<std::string, Variable>>& parameters,
                                           const StageTensors& stages, const BucketLimits& limits,
                                           const std::vector<std::string>& sliced = {});
// Returns by stage the buckets with parameters of it, ascending; those of a whole model are stage 0.
std::map<int, std::vector<std::size_t>> buckets_by_stage(
    const std::vector<Bucket>& buckets, const std::vector<std::pair<std::string, Variable>>& parameters,
    const StageTensors& stages);

}  // namespace ddprun
