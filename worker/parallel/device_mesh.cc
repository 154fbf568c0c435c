#include "ddprun/worker/parallel/device_mesh.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/subgroups.h"

namespace ddprun {
namespace {

bool is_rest(const MeshDimension& dimension) {
  return dimension.size == mesh_rest;
}

// "data x tensor 2"
std::string text(const std::vector<MeshDimension>& dimensions) {
  std::vector<std::string> parts;
  for (const auto& each : dimensions)
    parts.push_back(is_rest(each) ? each.name : fmt::format("{} {}", each.name, each.size));
  return fmt::format("{}", fmt::join(parts, " x "));
}

void check(const std::vector<MeshDimension>& dimensions) {
  std::set<std::string> names;
  for (const auto& each : dimensions) {
    if (each.size < 0) throw make_error(Errc::usage, "a mesh {}: a size below 1", text(dimensions));
    if (!names.insert(each.name).second)
      throw make_error(Errc::usage, "a mesh {}: two dimensions named {}", text(dimensions), each.name);
  }
  if (std::ranges::count_if(dimensions, is_rest) > 1)
    throw make_error(Errc::usage, "a mesh {}: one dimension at most has no size", text(dimensions));
}

// A group of one rank costs no communication.
std::unique_ptr<ProcessGroup> form_group(ProcessGroup& all, const std::vector<int>& ranks) {
  if (ranks.size() == 1) return all.make_subgroup(ranks, fmt::format("{}.{}", all.number_subgroup(), all.rank()));
  return split(all, ranks.front(), all.rank());
}

}  // namespace

std::vector<int> mesh_sizes(const std::vector<MeshDimension>& dimensions, int ranks) {
  check(dimensions);
  std::int64_t product = 1;
  for (const auto& each : dimensions)
    if (!is_rest(each)) product *= each.size;
  const bool has_rest = std::ranges::any_of(dimensions, is_rest);
  if (has_rest && ranks % product != 0)
    throw make_error(Errc::usage, "a mesh {} needs a multiple of {} ranks, and there are {}", text(dimensions), product,
                     ranks);
  if (!has_rest && product != ranks)
    throw make_error(Errc::usage, "a mesh {} needs {} ranks, and there are {}", text(dimensions), product, ranks);
  std::vector<int> sizes;
  for (const auto& each : dimensions) sizes.push_back(is_rest(each) ? ranks / static_cast<int>(product) : each.size);
  return sizes;
}

std::vector<int> mesh_coordinates(const std::vector<int>& sizes, int rank) {
  std::vector<int> coordinates(sizes.size());
  for (std::size_t i = sizes.size(); i-- > 0; rank /= sizes[i]) coordinates[i] = rank % sizes[i];
  return coordinates;
}

std::vector<int> mesh_ranks_along(const std::vector<int>& sizes, int rank, std::size_t dimension) {
  int stride = 1;
  for (std::size_t i = dimension + 1; i < sizes.size(); ++i) stride *= sizes[i];
  const int first = rank - mesh_coordinates(sizes, rank)[dimension] * stride;
  std::vector<int> ranks;
  for (int i = 0; i < sizes[dimension]; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

std::string mesh_place(const std::vector<MeshDimension>& dimensions, int ranks, int rank) {
  const std::vector<int> sizes = mesh_sizes(dimensions, ranks), coordinates = mesh_coordinates(sizes, rank);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1) parts.push_back(fmt::format("{} {}", dimensions[i].name, coordinates[i]));
  return fmt::format("{}", fmt::join(parts, ", "));
}

DeviceMesh::DeviceMesh(ProcessGroup& all, std::vector<MeshDimension> dimensions) : all_(all) {
  const std::vector<int> sizes = mesh_sizes(dimensions, all.size());
  const std::vector<int> coordinates = mesh_coordinates(sizes, all.rank());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Axis axis{.name = std::move(dimensions[i].name), .size = sizes[i], .coordinate = coordinates[i], .owned = nullptr};
    if (sizes[i] < all.size()) axis.owned = form_group(all, mesh_ranks_along(sizes, all.rank(), i));
    axis.group = axis.owned ? axis.owned.get() : &all;
    axes_.push_back(std::move(axis));
  }
}

const DeviceMesh::Axis& DeviceMesh::at(std::string_view dimension) const {
  const auto found = std::ranges::find(axes_, dimension, &Axis::name);
  if (found == axes_.end()) throw make_error(Errc::usage, "the mesh has no dimension {}", dimension);
  return *found;
}

std::uint64_t DeviceMesh::bytes_sent() const {
  std::uint64_t sum = all_.bytes_sent();
  for (const Axis& axis : axes_)
    if (axis.owned) sum += axis.owned->bytes_sent();
  return sum;
}

}  // namespace ddprun
