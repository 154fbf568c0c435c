#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/parallel/pipeline/schedule.h"
#include "ddprun/worker/parallel/pipeline/stage.h"
#include "ddprun/worker/parallel/state_division.h"

namespace ddprun::pipeline {

// The state of a model, or of an optimizer of it, of which each rank has that of its stages. Of a parameter that
// several ranks have, the first one's counts. An optimizer may keep different tensors of different parameters (Muon of
// matrices and of others), so each rank says which ones it has.
//
// Ownership: the group outlives it.
class StageDivision final : public StateDivision {
 public:
  // stages: all of the model's.
  StageDivision(const std::vector<Stage>& stages, const Schedule& schedule, ProcessGroup& group);

  // That has this parameter or buffer.
  int first_rank(const std::string& name) const { return *ranks_of(name).begin(); }
  using Ranks = std::set<int>;
  // That have this parameter or buffer, or an optimizer's state of it.
  const Ranks& ranks_of(const std::string& name) const;

  optim::NamedTensors gather(const optim::NamedTensors& own) const override;
  optim::NamedTensors whole_like(const optim::NamedTensors& own) const override;
  void scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const override;

 private:
  std::map<std::string, Ranks> ranks_;  // by parameter or buffer
  ProcessGroup& group_;
};

}  // namespace ddprun::pipeline
