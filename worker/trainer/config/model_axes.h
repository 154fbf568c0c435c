#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "common/config/settings.h"
#include "worker/parallel/mesh/mesh_shape.h"
#include "worker/trainer/config/axis_ranks.h"
#include "worker/trainer/config/train_config.h"

// The axes that a job's mesh may have besides "data". Pure functions.
namespace ddprun::trainer {

// An axis whose neighbouring ranks compute for each other. What its ranks have of their own says over which ranks a
// step's samples, gradients and losses are summed (session/mesh_groups.h), and what `plan` counts.
struct ModelAxis {
  std::string_view key;          // that of the number of ranks, such as "parallel.tensor"
  std::string_view help;         // the key's
  bool is_outermost = false;     // its ranks are the farthest from each other: the mesh has it before "data"
  bool shards_state = false;     // each rank has a part of the parameters; otherwise all have the same
  bool has_own_samples = false;  // each rank has other samples; otherwise all have the same
  // Each rank has gradients of its samples or positions, of the parameters that the axis does not shard; otherwise all
  // have the same.
  bool has_own_gradients = false;
  bool has_own_losses = false;  // each rank has losses of its samples or positions, or one alone has losses
  // Returns whether the model has what the axis divides. Null: every model has it.
  bool (*is_possible)(const TrainConfig&) = nullptr;
  // Refuses other settings with which the ranks cannot do this, as check_parallel() does. Null: there are none.
  void (*check)(const TrainConfig&, const Settings&) = nullptr;

  std::string_view name() const { return key.substr(key.find('.') + 1); }
};

// Returns the axes, those first whose ranks exchange most.
std::span<const ModelAxis> model_axes();
// Returns the axis of a name. REQUIRES: there is one.
const ModelAxis& model_axis(std::string_view name);

// Returns the names of the axes for which this member is set, in the order of mesh_axes().
AxisNames axes_with(bool ModelAxis::*property);
// Returns the axes of several ranks, in the order of model_axes().
std::vector<const ModelAxis*> axes_in_use(const AxisRanks& sizes);

// Returns all axes of a job's ranks, the outermost first: those before "data", it, and the others, of which the last
// has the ranks that exchange most.
std::vector<MeshAxis> mesh_axes(const AxisRanks& sizes);

// Returns whether ranks have parts of the parameters, on an axis that shards them.
bool shards_state(const AxisRanks& sizes);
// Returns the number of ranks that have parts of one model.
int ranks_of_model(const AxisRanks& sizes);
// Returns the number of ranks that have the same samples.
int ranks_of_sample(const AxisRanks& sizes);
// Returns the number of ranks that compute together; a job has one or more such sets.
int ranks_of_replica(const AxisRanks& sizes);

}  // namespace ddprun::trainer
