#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/nn/module.h"
#include "worker/optim/parameter_group.h"
#include "worker/parallel/forms/form.h"
#include "worker/parallel/mesh/device_mesh.h"
#include "worker/parallel/sharding/parameter_placements.h"
#include "worker/tasks/task.h"
#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/mesh_groups.h"

namespace ddprun::trainer {

// The forms of parallel training on the axes of a mesh, applied to a model, and what follows from all of them together.
//
// Ownership: model, mesh and groups outlive it. Threads: one at a time; the constructor is collective.
// Errors: those of the forms; Errc::usage names the key of the axis and its value.
class AxisForms {
 public:
  AxisForms(const TrainConfig& config, nn::Module& model, const DeviceMesh& mesh, const MeshGroups& groups);
  ~AxisForms();
  AxisForms(const AxisForms&) = delete;
  AxisForms& operator=(const AxisForms&) = delete;

  // The parameters of which ranks have a shard, by axis of the mesh, the outermost first.
  const sharding::ShardsOnAxes& shards() const { return shards_; }
  // The parameters that ranks with gradients of their own shard, so that these gradients are sharded as well: those of
  // experts. Null if there are none.
  const sharding::DimensionShards* experts() const { return experts_; }
  bool is_expert(const std::string& parameter) const { return experts_ && experts_->contains(parameter); }

  // Returns whether ranks have some of the positions of the same samples.
  bool divides_positions() const;
  // Returns this rank's positions of inputs or targets that have all.
  Tensor own_positions(Tensor all) const;
  // Returns whether this rank's losses are of samples, or of parts of them, that no other rank before it has.
  bool has_own_losses() const;
  bool needs_equal_passes() const;
  // Returns the task for a model whose ranks have parts of the scores; null if each has all.
  std::unique_ptr<tasks::Task> task_of_own_scores(const tasks::Task& task) const;

  std::vector<std::string> own_gradients() const;
  void complete_gradients(const optim::NamedParameters& updated) const;

  std::chrono::nanoseconds waited() const;
  // The bytes that passes have sent.
  std::size_t bytes() const;

 private:
  struct Applied {
    const ModelAxis* axis;
    std::unique_ptr<Form> form;
  };
  bool any_form(const std::function<bool(const Form&)>& holds) const;

  std::vector<Applied> applied_;  // in the order of application
  sharding::ShardsOnAxes shards_;
  const sharding::DimensionShards* experts_ = nullptr;
};

}  // namespace ddprun::trainer
