#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/parallel/stored/stored_state.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/state_parts.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// The parts of a sharded state that each rank writes: its own ones, and some of those that several ranks have alike,
// so that all write about as much.
//
// Ownership: handles on the parts' memory; the state outlives it. Threads: any number may read. Errors: none.
class SavedParts {
 public:
  // ranks: those of the session. The result is the same at all of them.
  SavedParts(const StateParts& parts, const TrainConfig::Parallel& config, const TrainState& state, int rank,
             int ranks);

  // The content of this rank's file.
  struct Content {
    checkpoint::Content tensors;
    std::vector<Tensor> memory;  // of the tensors
  };
  // Refers to the parts' memory on the host, and to copies of what is on a device.
  Content content() const;
  // Returns the memory that a copy of the content takes, with averages that have not begun.
  std::size_t copied_bytes() const;
  // Returns the text of placements.json.
  std::string placements() const;

 private:
  std::vector<checkpoint::TensorView> views(stored::Kind kind, std::vector<Tensor>& memory) const;
  bool has(stored::Kind kind) const;

  const StateParts parts_;
  const TrainState& state_;
  const int rank_;
  stored::StoredState stored_;
};

}  // namespace ddprun::trainer
