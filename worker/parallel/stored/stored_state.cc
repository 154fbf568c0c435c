#include "worker/parallel/stored/stored_state.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/printable.h"
#include "worker/checkpoint/file_writer.h"
#include "worker/parallel/stored/placements_json.h"

namespace ddprun::stored {
namespace {

std::string_view prefix_of(Kind kind) {
  if (kind == Kind::model) return checkpoint::model_prefix;
  return kind == Kind::optimizer ? checkpoint::optimizer_prefix : checkpoint::ema_prefix;
}

const char* whole_file(Kind kind) {
  if (kind == Kind::model) return checkpoint::model_file;
  return kind == Kind::optimizer ? checkpoint::optimizer_file : checkpoint::ema_file;
}

StoredState whole_state_of(const checkpoint::Found& found) {
  StoredState state(1, true);
  const auto mesh = std::make_shared<const MeshShape>(std::vector<MeshAxis>{}, 1);
  for (const Kind kind : all_kinds) {
    if (kind == Kind::averages && !found.has(checkpoint::ema_file)) continue;
    const checkpoint::SafetensorsFile file(found.folder / whole_file(kind));
    StoredTensors& stored = state.of(kind);
    for (const auto& info : file.tensors()) {
      stored.tensors.push_back({{info.name, info.shape, info.dtype}, {.mesh = mesh}});
      stored.writers.emplace_back(info.bytes() > 0 ? 1 : 0, 0);
    }
  }
  return state;
}

StoredLimits limits_of(const checkpoint::Found& found) {
  StoredLimits limits{.ranks = 0, .bytes = 0};
  for (const auto& [name, digest] : found.files) {
    if (!checkpoint::is_part_file(name)) continue;
    ++limits.ranks;
    limits.bytes += digest.bytes;
  }
  return limits;
}

void check_unique_names(const StoredState& state, const std::string& source) {
  for (const Kind kind : all_kinds) {
    std::set<std::string_view> names;
    for (const auto& tensor : state.of(kind).tensors)
      if (const auto& name = tensor.spec().name; !names.insert(name).second)
        throw make_error(Errc::io, "{}: tensor {} is there twice", source, printable(name));
  }
}

}  // namespace

bool StoredTensors::is_written_by(int rank, std::size_t tensor) const {
  return std::ranges::count(writers[tensor], rank) > 0;
}

std::string StoredState::file_of(Kind kind, int rank) const {
  return is_whole_ ? whole_file(kind) : checkpoint::part_file(rank);
}

std::string StoredState::name_in_file(Kind kind, const std::string& tensor) const {
  return is_whole_ ? tensor : std::string(prefix_of(kind)) + tensor;
}

StoredTensors WriterChoice::choose(std::vector<sharding::PlacedTensor> tensors,
                                   const std::function<bool(const std::string& tensor)>& first_counts) {
  StoredTensors stored{.tensors = std::move(tensors), .writers = {}};
  for (const auto& tensor : stored.tensors) {
    auto& writers = stored.writers.emplace_back();
    const bool first = first_counts && first_counts(tensor.spec().name);
    for (const auto& part : tensor.parts()) {
      const auto holders = tensor.holders(part);
      const auto bytes_of = [&](int rank) { return bytes_[static_cast<std::size_t>(rank)]; };
      const int writer = first ? holders.front() : *std::ranges::min_element(holders, {}, bytes_of);
      bytes_[static_cast<std::size_t>(writer)] += tensor.local_bytes(writer);
      writers.push_back(writer);
    }
  }
  return stored;
}

StoredState stored_state_of(const checkpoint::Found& found) {
  if (!found.has_parts) return whole_state_of(found);
  const auto file = found.folder / checkpoint::placements_file;
  auto state = stored_state_from_json(checkpoint::read_file(file), file.string(), limits_of(found));
  check_unique_names(state, file.string());
  if (state.is_whole())
    throw make_error(Errc::io, "{}: member whole is true, expected false in a checkpoint of parts", file.string());
  return state;
}

}  // namespace ddprun::stored
