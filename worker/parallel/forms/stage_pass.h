#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddprun {

// The part of a model that a rank has whose pipeline spreads the stages over several ranks; empty if it has all.
// Parameters and buffers are named by path.
struct StageTensors {
  std::vector<std::string> absent;  // parameters and buffers that only the stages of other ranks have
  // Parameters that learn and that several stages have: where updates are sharded, each has a bucket of its own, so
  // that parts of it are the same ranges at all of these stages.
  std::vector<std::string> shared;
  std::map<int, std::vector<std::string>> parameters;  // by stage of this rank

  // Returns those of a model's named parameters or buffers that this rank has.
  template <class Named>
  Named present(Named all) const {
    std::erase_if(all, [this](const auto& each) { return std::ranges::count(absent, each.first) > 0; });
    return all;
  }
};

enum class PassKind : std::uint8_t {
  whole,  // forward and backward pass of the whole model
  forward,
  backward,
  backward_input,   // of a backward pass in two parts (pipeline/schedule.h) the first one
  backward_weight,  // and the second one, in which gradients become ready, if they have not become so in the first
  evaluation,
};

// A pass through a model, or through one stage of it. Passes of the same stage and kind call the same modules in the
// same order.
struct StagePass {
  int stage = 0;
  PassKind kind = PassKind::whole;
  bool has_samples = true;  // false at a rank that only takes part in the communication of others
  bool reduces = false;     // true for the last backward pass of a step, if the stage is the only one of this rank
};

}  // namespace ddprun
