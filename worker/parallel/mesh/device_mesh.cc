#include "worker/parallel/mesh/device_mesh.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace ddprun {

DeviceMesh::DeviceMesh(ProcessGroup& all, std::vector<MeshAxis> axes) : all_(all), shape_(std::move(axes), all.size()) {
  for (std::size_t i = 0; i < shape_.axes().size(); ++i) {
    groups_.push_back(&form(shape_.ranks_along(all.rank(), {shape_.axes()[i].name})));
    products_[{i}] = groups_.back();
  }
}

// Every rank knows the ranks of its group, so they need not ask each other, and a group of one rank costs nothing.
ProcessGroup& DeviceMesh::form(const std::vector<int>& ranks) {
  if (std::ssize(ranks) == all_.size()) return all_;
  owned_.push_back(all_.make_subgroup(ranks, fmt::format("{}.{}", all_.number_subgroup(), ranks.front())));
  return *owned_.back();
}

ProcessGroup& DeviceMesh::group_over(const AxisNames& axes) {
  std::vector<std::size_t> several;
  for (const std::string& axis : axes)
    if (shape_.size(axis) > 1) several.push_back(shape_.index_of(axis));
  std::ranges::sort(several);
  several.erase(std::unique(several.begin(), several.end()), several.end());
  const auto made = products_.find(several);
  if (made != products_.end()) return *made->second;
  ProcessGroup& group = form(shape_.ranks_along(all_.rank(), axes));
  products_[several] = &group;
  return group;
}

std::uint64_t DeviceMesh::bytes_sent() const {
  std::uint64_t sum = all_.bytes_sent();
  for (const auto& group : owned_) sum += group->bytes_sent();
  return sum;
}

}  // namespace ddprun
