#include "worker/trainer/session/mesh_groups.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/trainer/config/model_axes.h"

namespace ddprun::trainer {
namespace {

// Leaves out the axes that the mesh does not have.
ProcessGroup& group_over(DeviceMesh& mesh, const AxisNames& axes) {
  return mesh.group_over(mesh.shape().among(axes));
}

ProcessGroup* find_group(DeviceMesh& mesh, const AxisNames& axes) {
  return mesh.shape().among(axes).empty() ? nullptr : &group_over(mesh, axes);
}

AxisNames data_and(AxisNames axes) {
  axes.emplace_back("data");
  return axes;
}

AxisNames without(AxisNames axes, const AxisNames& others) {
  std::erase_if(axes, [&](const std::string& axis) { return std::ranges::count(others, axis) > 0; });
  return axes;
}

}  // namespace

MeshGroups::MeshGroups(DeviceMesh& mesh)
    : samples(group_over(mesh, data_and(axes_with(&ModelAxis::has_own_samples)))),
      gradients(group_over(mesh, data_and(axes_with(&ModelAxis::has_own_gradients)))),
      gradients_of_experts(group_over(
          mesh, data_and(without(axes_with(&ModelAxis::has_own_gradients), axes_with(&ModelAxis::shards_state))))),
      stages(find_group(mesh, {"pipeline"})),
      parts_of_losses(
          find_group(mesh, without(axes_with(&ModelAxis::has_own_losses), axes_with(&ModelAxis::has_own_samples)))) {}

}  // namespace ddprun::trainer
