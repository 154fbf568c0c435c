#include "ddprun/worker/trainer/session/mesh_groups.h"

namespace ddprun::trainer {
namespace {

// Leaves out the axes that the mesh does not have.
ProcessGroup& group_over(DeviceMesh& mesh, const AxisNames& axes) {
  return mesh.group_over(mesh.shape().among(axes));
}

}  // namespace

MeshGroups::MeshGroups(DeviceMesh& mesh)
    : samples(group_over(mesh, {"data", "expert"})),
      gradients(group_over(mesh, {"data", "expert", "context"})),
      gradients_of_experts(group_over(mesh, {"data", "context"})),
      slices(group_over(mesh, {"expert", "tensor"})),
      stages(group_over(mesh, {"pipeline"})),
      parts_of_losses(group_over(mesh, {"pipeline", "context"})) {}

}  // namespace ddprun::trainer
