#include "worker/parallel/mesh/mesh_shape.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"

namespace ddprun {
namespace {

bool is_rest(const MeshAxis& axis) {
  return axis.size == mesh_rest;
}

// Returns a text such as "data x tensor 2".
std::string text(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> parts;
  for (const auto& each : axes) parts.push_back(is_rest(each) ? each.name : fmt::format("{} {}", each.name, each.size));
  return fmt::format("{}", fmt::join(parts, " x "));
}

void check(const std::vector<MeshAxis>& axes) {
  std::set<std::string> names;
  for (const auto& each : axes) {
    if (each.size < 0) throw make_error(Errc::usage, "a mesh {}: a size below 1", text(axes));
    if (!names.insert(each.name).second)
      throw make_error(Errc::usage, "a mesh {}: two axes named {}", text(axes), each.name);
  }
  if (std::ranges::count_if(axes, is_rest) > 1)
    throw make_error(Errc::usage, "a mesh {}: one axis at most has no size", text(axes));
}

}  // namespace

std::vector<int> mesh_sizes(const std::vector<MeshAxis>& axes, int ranks) {
  check(axes);
  std::int64_t product = 1;  // of no more axes than it takes to exceed the ranks
  for (const auto& each : axes)
    if (!is_rest(each) && product <= ranks) product *= each.size;
  const bool has_rest = std::ranges::any_of(axes, is_rest);
  if (has_rest && ranks % product != 0)
    throw make_error(Errc::usage, "a mesh {} needs a multiple of {} ranks, and there are {}", text(axes), product,
                     ranks);
  if (!has_rest && product != ranks)
    throw make_error(Errc::usage, "a mesh {} needs {} ranks, and there are {}", text(axes), product, ranks);
  std::vector<int> sizes;
  for (const auto& each : axes) sizes.push_back(is_rest(each) ? ranks / static_cast<int>(product) : each.size);
  return sizes;
}

std::string mesh_place(const std::vector<MeshAxis>& axes, int ranks, int rank) {
  const MeshShape shape(axes, ranks);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < shape.axes().size(); ++i)
    if (shape.axes()[i].size > 1)
      parts.push_back(fmt::format("{} {}", shape.axes()[i].name, shape.coordinate(rank, i)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

MeshShape::MeshShape(std::vector<MeshAxis> axes, int ranks)
    : axes_(std::move(axes)), strides_(axes_.size()), ranks_(ranks) {
  const std::vector<int> sizes = mesh_sizes(axes_, ranks);
  int stride = 1;
  for (std::size_t i = axes_.size(); i-- > 0; stride *= sizes[i]) {
    axes_[i].size = sizes[i];
    strides_[i] = stride;
  }
}

std::size_t MeshShape::index_of(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &MeshAxis::name);
  if (found == axes_.end()) throw make_error(Errc::usage, "the mesh has no axis {}", axis);
  return static_cast<std::size_t>(found - axes_.begin());
}

AxisNames MeshShape::among(AxisNames names) const {
  std::erase_if(names,
                [this](const std::string& name) { return std::ranges::count(axes_, name, &MeshAxis::name) == 0; });
  return names;
}

std::vector<bool> MeshShape::chosen(const AxisNames& axes) const {
  std::vector<bool> chosen(axes_.size(), false);
  for (const std::string& axis : axes) chosen[index_of(axis)] = true;
  return chosen;
}

int MeshShape::size(const AxisNames& axes) const {
  const std::vector<bool> is_chosen = chosen(axes);
  int product = 1;
  for (std::size_t i = 0; i < axes_.size(); ++i)
    if (is_chosen[i]) product *= axes_[i].size;
  return product;
}

std::vector<int> MeshShape::coordinates(int rank) const {
  std::vector<int> all;
  for (std::size_t i = 0; i < axes_.size(); ++i) all.push_back(coordinate(rank, i));
  return all;
}

std::vector<int> MeshShape::ranks_along(int rank, const AxisNames& axes) const {
  const std::vector<bool> is_chosen = chosen(axes);
  int first = rank;
  for (std::size_t i = 0; i < axes_.size(); ++i)
    if (is_chosen[i]) first -= coordinate(rank, i) * strides_[i];
  std::vector<int> ranks{first};
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (!is_chosen[i]) continue;
    std::vector<int> next;
    for (const int each : ranks)
      for (int c = 0; c < axes_[i].size; ++c) next.push_back(each + c * strides_[i]);
    ranks = std::move(next);
  }
  return ranks;
}

}  // namespace ddprun
