#include "worker/trainer/session/mesh_groups.h"

namespace ddprun::trainer {
namespace {

// Leaves out the axes that the mesh does not have.
ProcessGroup& group_over(DeviceMesh& mesh, const AxisNames& axes) {
  return mesh.group_over(mesh.shape().among(axes));
}

ProcessGroup* find_group(DeviceMesh& mesh, const AxisNames& axes) {
  return mesh.shape().among(axes).empty() ? nullptr : &group_over(mesh, axes);
}

}  // namespace

MeshGroups::MeshGroups(DeviceMesh& mesh)
    : samples(group_over(mesh, {"data", "expert"})),
      gradients(group_over(mesh, {"data", "expert", "context"})),
      gradients_of_experts(group_over(mesh, {"data", "context"})),
      stages(find_group(mesh, {"pipeline"})),
      parts_of_losses(find_group(mesh, {"pipeline", "context"})) {}

}  // namespace ddprun::trainer
