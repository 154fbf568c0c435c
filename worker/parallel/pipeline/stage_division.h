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
// several ranks have, the first one's counts.
//
// Ownership: the group outlives it.
class StageDivision final : public StateDivision {
 public:
  // stages: all of the model's.
  StageDivision(const std::vector<Stage>& stages, const Schedule& schedule, ProcessGroup& group);

  // That has this parameter or buffer.
  int first_rank(const std::string& name) const { return *entry_of(name).ranks.begin(); }

  optim::NamedTensors gather(const optim::NamedTensors& own) const override;
  optim::NamedTensors whole_like(const optim::NamedTensors& own) const override;
  void scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const override;

 private:
  // A parameter or a buffer of the model.
  struct Entry {
    Shape shape;
    DType dtype = DType::float32;
    bool learns = false;
    std::set<int> ranks;
  };
  // By name of the tensor: its entry.
  std::map<std::string, const Entry*> entries_of(const optim::NamedTensors& tensors) const;
  const Entry& entry_of(const std::string& name) const;

  std::map<std::string, Entry> entries_;
  ProcessGroup& group_;
};

}  // namespace ddprun::pipeline
