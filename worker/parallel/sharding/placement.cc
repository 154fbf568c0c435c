#include "worker/parallel/sharding/placement.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/reducer/shards.h"

namespace ddprun::sharding {
namespace {

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies());
}

int slices_on(const MeshShape& mesh, const Shard& shard) {
  return mesh.size(shard.axis) / shard.copies;
}

// A slice of each piece of a dimension, in entries.
struct PieceSlice {
  std::int64_t piece;  // number of entries of the whole piece
  std::int64_t full;   // number of entries of the largest slice
  std::int64_t begin;  // index in the piece
  std::int64_t count;
  std::int64_t stored(const Shard& shard) const { return shard.is_padded ? full : count; }
};
PieceSlice slice_of_piece(std::int64_t entries, const MeshShape& mesh, const Shard& shard, int slice) {
  const std::int64_t piece = entries / shard.pieces, units = piece / shard.unit;
  const int slices = slices_on(mesh, shard);
  const std::int64_t full = divide_up(units, slices) * shard.unit;
  const std::int64_t begin = std::min(slice * full, piece);
  return {.piece = piece, .full = full, .begin = begin, .count = std::min(full, piece - begin)};
}

void check_shard(const TensorSpec& spec, const MeshShape& mesh, const Shard& shard) {
  if (shard.dimension >= spec.shape.size())
    throw make_error(Errc::usage, "{} has no dimension {} to shard", spec.name, shard.dimension);
  const std::int64_t entries = spec.shape[shard.dimension];
  if (shard.pieces < 1 || shard.unit < 1 || shard.pieces > std::max<std::int64_t>(entries, 1) ||
      entries % shard.unit != 0 || entries / shard.unit % shard.pieces != 0)
    throw make_error(Errc::usage, "dimension {} of {} has {} entries, which are not {} pieces of units of {}",
                     shard.dimension, spec.name, entries, shard.pieces, shard.unit);
  if (shard.copies < 1 || mesh.size(shard.axis) % shard.copies != 0)
    throw make_error(Errc::usage, "{} copies of each slice of {} do not divide the {} ranks of axis {}", shard.copies,
                     spec.name, mesh.size(shard.axis), shard.axis);
}

// Returns whether the tensor is a parameter, or is kept of one, such as "fc1.weight.exp_avg".
bool is_of(const std::string& tensor, const std::string& parameter) {
  return tensor == parameter || tensor.starts_with(parameter + ".");
}

// Returns parts of ascending ranges that lie in a window of the local slice.
std::vector<HeldRange> clipped(const std::vector<HeldRange>& ranges, const IndexRange& window) {
  std::vector<HeldRange> result;
  auto first = std::ranges::upper_bound(ranges, window.begin, {}, &HeldRange::local);
  if (first != ranges.begin()) --first;
  for (; first != ranges.end() && first->local < window.end; ++first) {
    const std::int64_t begin = std::max(first->local, window.begin);
    const std::int64_t end = std::min(first->local + first->whole.count(), window.end);
    const std::int64_t shift = first->whole.begin - first->local;
    if (begin < end) result.push_back({{begin + shift, end + shift}, begin - window.begin});
  }
  return result;
}

// Advances to the next combination, the last digit fastest; returns false after the last one.
bool advance(std::vector<int>& digits, const std::vector<int>& sizes) {
  for (std::size_t i = digits.size(); i-- > 0;) {
    if (++digits[i] < sizes[i]) return true;
    digits[i] = 0;
  }
  return false;
}

}  // namespace

std::int64_t TensorSpec::elements() const {
  return product(shape);
}

PlacedTensor::PlacedTensor(TensorSpec spec, Placement placement)
    : spec_(std::move(spec)), placement_(std::move(placement)) {
  const MeshShape& mesh = *placement_.mesh;
  std::set<std::size_t> axes;
  std::set<std::size_t> dimensions;
  const auto claim = [&](const std::string& axis) {
    if (!axes.insert(mesh.index_of(axis)).second)
      throw make_error(Errc::usage, "the placement of {} names the axis {} twice", spec_.name, axis);
  };
  if (placement_.stage) {
    claim("pipeline");
    if (placement_.stage->coordinates.empty()) throw make_error(Errc::usage, "{} is at no stage", spec_.name);
    std::set<int> stages;
    for (const int each : placement_.stage->coordinates) {
      if (each < 0 || each >= mesh.size("pipeline"))
        throw make_error(Errc::usage, "there is no stage {} for {}", each, spec_.name);
      if (!stages.insert(each).second) throw make_error(Errc::usage, "{} is at stage {} twice", spec_.name, each);
    }
  }
  for (const Shard& shard : placement_.shards) {
    claim(shard.axis);
    check_shard(spec_, mesh, shard);
    if (!dimensions.insert(shard.dimension).second)
      throw make_error(Errc::usage, "the placement of {} shards dimension {} twice", spec_.name, shard.dimension);
  }
  if (const auto* flat = std::get_if<FlatShard>(&placement_.local)) {
    for (const std::string& axis : flat->axes) claim(axis);
    if (!flat->bucket || flat->slot >= flat->bucket->slots.size() ||
        !is_of(spec_.name, flat->bucket->slots[flat->slot].tensor) ||
        flat->bucket->slots[flat->slot].count < product(slice_shape(std::vector<int>(placement_.shards.size()))))
      throw make_error(Errc::usage, "the bucket has no slot for {}", spec_.name);
  }
  if (const auto* owner = std::get_if<Owner>(&placement_.local)) {
    claim(owner->axis);
    if (owner->coordinate < 0 || owner->coordinate >= mesh.size(owner->axis))
      throw make_error(Errc::usage, "axis {} has no coordinate {} to own {}", owner->axis, owner->coordinate,
                       spec_.name);
  }
}

bool PlacedTensor::exists_at(int rank) const {
  const MeshShape& mesh = *placement_.mesh;
  if (placement_.stage && std::ranges::count(placement_.stage->coordinates, mesh.coordinate(rank, "pipeline")) == 0)
    return false;
  const auto* owner = std::get_if<Owner>(&placement_.local);
  return !owner || mesh.coordinate(rank, owner->axis) == owner->coordinate;
}

std::vector<int> PlacedTensor::slices_of(int rank) const {
  std::vector<int> slices;
  for (const Shard& shard : placement_.shards)
    slices.push_back(placement_.mesh->coordinate(rank, shard.axis) / shard.copies);
  return slices;
}

int PlacedTensor::flat_of(int rank) const {
  const auto* flat = std::get_if<FlatShard>(&placement_.local);
  if (!flat) return -1;
  int position = 0;
  for (const std::string& axis : flat->axes)
    position = position * placement_.mesh->size(axis) + placement_.mesh->coordinate(rank, axis);
  return position;
}

std::vector<PlacedTensor::Slice> PlacedTensor::slice_entries(std::size_t dimension,
                                                             const std::vector<int>& slices) const {
  const std::int64_t entries = spec_.shape[dimension];
  for (std::size_t s = 0; s < placement_.shards.size(); ++s) {
    const Shard& shard = placement_.shards[s];
    if (shard.dimension != dimension) continue;
    const PieceSlice own = slice_of_piece(entries, *placement_.mesh, shard, slices[s]);
    std::vector<Slice> parts;
    for (std::int64_t p = 0; p < shard.pieces; ++p)
      parts.push_back({p * own.piece + own.begin, p * own.stored(shard), own.count});
    return parts;
  }
  return {{0, 0, entries}};
}

std::vector<std::int64_t> PlacedTensor::slice_shape(const std::vector<int>& slices) const {
  std::vector<std::int64_t> shape = spec_.shape;
  for (std::size_t s = 0; s < placement_.shards.size(); ++s) {
    const Shard& shard = placement_.shards[s];
    std::int64_t& size = shape[shard.dimension];
    size = shard.pieces * slice_of_piece(size, *placement_.mesh, shard, slices[s]).stored(shard);
  }
  return shape;
}

std::vector<HeldRange> PlacedTensor::slice_ranges(const std::vector<int>& slices) const {
  std::vector<HeldRange> ranges;
  const auto emit = [&](std::int64_t whole, std::int64_t local, std::int64_t count) {
    if (count == 0) return;
    if (!ranges.empty() && ranges.back().whole.end == whole &&
        ranges.back().local + ranges.back().whole.count() == local)
      ranges.back().whole.end += count;
    else
      ranges.push_back({{whole, whole + count}, local});
  };
  if (placement_.shards.empty()) {
    emit(0, 0, spec_.elements());
    return ranges;
  }
  const std::vector<std::int64_t> shape = slice_shape(slices);
  const std::size_t last = std::ranges::max(placement_.shards, {}, &Shard::dimension).dimension;
  std::vector<std::vector<Slice>> entries;
  for (std::size_t d = 0; d <= last; ++d) entries.push_back(slice_entries(d, slices));
  const std::function<void(std::size_t, std::int64_t, std::int64_t)> visit = [&](std::size_t d, std::int64_t whole,
                                                                                 std::int64_t local) {
    whole *= spec_.shape[d];
    local *= shape[d];
    for (const Slice& slice : entries[d]) {
      if (d == last) {
        std::int64_t inner = 1;
        for (std::size_t i = last + 1; i < shape.size(); ++i) inner *= shape[i];
        emit((whole + slice.whole) * inner, (local + slice.local) * inner, slice.count * inner);
      } else {
        for (std::int64_t i = 0; i < slice.count; ++i) visit(d + 1, whole + slice.whole + i, local + slice.local + i);
      }
    }
  };
  visit(0, 0, 0);
  return ranges;
}

// Returns the range of a slice's elements that lies in a part of the bucket.
IndexRange PlacedTensor::flat_range(int flat, std::int64_t slice_elements) const {
  const auto& shard = std::get<FlatShard>(placement_.local);
  const std::int64_t offset = shard.bucket->slots[shard.slot].offset;
  const ddprun::Shard part =
      shard_of(static_cast<std::size_t>(shard.bucket->elements), flat, placement_.mesh->size(shard.axes));
  const std::int64_t begin =
      std::clamp(static_cast<std::int64_t>(part.begin) - offset, std::int64_t{0}, slice_elements);
  const std::int64_t end = std::clamp(static_cast<std::int64_t>(part.end) - offset, begin, slice_elements);
  return {begin, end};
}

std::vector<HeldRange> PlacedTensor::held(int rank) const {
  if (!exists_at(rank)) return {};
  const std::vector<int> slices = slices_of(rank);
  std::vector<HeldRange> ranges = slice_ranges(slices);
  const int flat = flat_of(rank);
  return flat < 0 ? ranges : clipped(ranges, flat_range(flat, product(slice_shape(slices))));
}

std::vector<std::int64_t> PlacedTensor::local_shape(int rank) const {
  const std::vector<std::int64_t> shape = slice_shape(slices_of(rank));
  const int flat = flat_of(rank);
  return flat < 0 ? shape : std::vector<std::int64_t>{flat_range(flat, product(shape)).count()};
}

std::int64_t PlacedTensor::local_elements(int rank) const {
  return exists_at(rank) ? product(local_shape(rank)) : 0;
}

std::int64_t PlacedTensor::local_bytes(int rank) const {
  return local_elements(rank) * static_cast<std::int64_t>(size_of(spec_.dtype));
}

PlacedTensor::Coordinates PlacedTensor::coordinates_of(const std::vector<int>& slices, int flat) const {
  const MeshShape& mesh = *placement_.mesh;
  Coordinates all(mesh.axes().size());
  if (placement_.stage) all[mesh.index_of("pipeline")] = placement_.stage->coordinates;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const Shard& shard = placement_.shards[s];
    auto& copies = all[mesh.index_of(shard.axis)];
    copies.resize(static_cast<std::size_t>(shard.copies));
    std::iota(copies.begin(), copies.end(), slices[s] * shard.copies);
  }
  if (const auto* shard = std::get_if<FlatShard>(&placement_.local))
    for (std::size_t i = shard->axes.size(); i-- > 0; flat /= mesh.size(shard->axes[i]))
      all[mesh.index_of(shard->axes[i])] = {flat % mesh.size(shard->axes[i])};
  if (const auto* owner = std::get_if<Owner>(&placement_.local)) all[mesh.index_of(owner->axis)] = {owner->coordinate};
  return all;
}

std::vector<int> PlacedTensor::ranks_with(const Coordinates& coordinates) const {
  std::vector<int> ranks{0};
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    const int size = placement_.mesh->axes()[i].size;
    std::vector<int> next;
    for (const int rank : ranks) {
      for (const int each : coordinates[i]) next.push_back(rank * size + each);
      for (int each = 0; coordinates[i].empty() && each < size; ++each) next.push_back(rank * size + each);
    }
    ranks = std::move(next);
  }
  std::ranges::sort(ranks);
  return ranks;
}

std::vector<int> PlacedTensor::holders(int rank) const {
  if (!exists_at(rank)) return {};
  return ranks_with(coordinates_of(slices_of(rank), flat_of(rank)));
}

PlacedTensor::Coordinates PlacedTensor::coordinates(const Part& part) const {
  return coordinates_of(part.slices, part.flat);
}

std::vector<int> PlacedTensor::holders(const Part& part) const {
  return ranks_with(coordinates(part));
}

std::vector<PlacedTensor::Part> PlacedTensor::parts() const {
  const MeshShape& mesh = *placement_.mesh;
  std::vector<int> sizes;
  for (const Shard& shard : placement_.shards) sizes.push_back(slices_on(mesh, shard));
  std::vector<Part> all;
  const auto add = [&](const std::vector<int>& slices, int flat, std::vector<HeldRange> ranges) {
    if (!ranges.empty()) all.push_back({slices, flat, std::move(ranges)});
  };
  std::vector<int> slices(sizes.size());
  do {
    std::vector<HeldRange> ranges = slice_ranges(slices);
    const auto* flat = std::get_if<FlatShard>(&placement_.local);
    if (!flat) {
      add(slices, -1, std::move(ranges));
      continue;
    }
    const std::int64_t elements = product(slice_shape(slices));
    const int count = mesh.size(flat->axes);
    // The parts of a bucket are of one size: those that end before the slot are skipped.
    const auto size = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(shard_of(static_cast<std::size_t>(flat->bucket->elements), 0, count).count()));
    const std::int64_t offset = flat->bucket->slots[flat->slot].offset;
    for (auto f = static_cast<int>(offset / size); f < count && f * size < offset + elements; ++f)
      add(slices, f, clipped(ranges, flat_range(f, elements)));
  } while (advance(slices, sizes));
  return all;
}

}  // namespace ddprun::sharding
