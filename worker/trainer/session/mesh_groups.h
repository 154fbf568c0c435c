#pragma once

#include "worker/comm/process_group.h"
#include "worker/parallel/mesh/device_mesh.h"

namespace ddprun::trainer {

// The groups of a job's ranks of which training asks who has what: each a product of axes of mesh_axes(). Null: the
// mesh has none of these axes.
//
// Ownership: those of the mesh, which outlives this object. Threads: the constructor is collective over all ranks.
struct MeshGroups {
  explicit MeshGroups(DeviceMesh& mesh);

  // The ranks that have samples of their own: one of all ranks that share them.
  ProcessGroup& samples;
  // The ranks that have samples, or positions of samples, of their own: on their axes the gradient is partial of what
  // none of these axes shards.
  ProcessGroup& gradients;
  // The same for experts, to which the tokens of all ranks come that shard them: on the axis "expert" their gradients
  // are sharded as they are.
  ProcessGroup& gradients_of_experts;
  // The ranks that have the stages of the same model.
  ProcessGroup* stages;
  // The ranks that have parts of the losses of the same samples: of their positions, or at the last stage alone.
  ProcessGroup* parts_of_losses;
};

}  // namespace ddprun::trainer
