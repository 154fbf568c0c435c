#include "worker/trainer/session/saved_parts.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "common/rounding.h"
#include "worker/checkpoint/snapshot.h"
#include "worker/parallel/stored/placements_json.h"
#include "worker/trainer/config/group_settings.h"

namespace ddprun::trainer {
namespace {

using stored::Kind;

const sharding::ShardedState& parts_of(const StateParts& parts, Kind kind) {
  if (kind == Kind::model) return parts.model;
  return kind == Kind::optimizer ? parts.optimizer : parts.averages;
}

}  // namespace

SavedParts::SavedParts(const StateParts& parts, const TrainConfig::Parallel& config, const TrainState& state, int rank,
                       int ranks)
    : parts_(parts), state_(state), rank_(rank), stored_(ranks, false) {
  std::set<std::string> differing;  // buffers, and what each rank trains by itself
  for (const auto& [name, buffer] : state.model->named_buffers()) differing.insert(name);
  const auto ignored = parse_names(config.ignored_parameters);
  const auto first_counts = [&](const std::string& name) {
    return differing.contains(name) || std::ranges::any_of(ignored, [&](const std::string& parameter) {
             return name == parameter || name.starts_with(parameter + ".");
           });
  };
  stored::WriterChoice choice(ranks);
  for (const Kind kind : stored::all_kinds)
    stored_.of(kind) = choice.choose(parts_of(parts_, kind).tensors(), first_counts);
}

bool SavedParts::has(Kind kind) const {
  return kind != Kind::averages || (state_.ema && state_.ema->started());
}

std::vector<checkpoint::TensorView> SavedParts::views(Kind kind, std::vector<Tensor>& memory) const {
  std::vector<checkpoint::TensorView> views;
  const auto& stored = stored_.of(kind);
  for (std::size_t i = 0; has(kind) && i < stored.tensors.size(); ++i) {
    if (!stored.is_written_by(rank_, i)) continue;
    const Tensor& own = parts_of(parts_, kind).own()[i];
    const Tensor& tensor = memory.emplace_back(own.device().type == DeviceType::cuda ? own.to(Device{}) : own);
    views.push_back({stored.tensors[i].spec().name, tensor.dtype(), tensor.shape().to_vector(),
                     std::span(static_cast<const std::byte*>(tensor.raw()), tensor.bytes())});
  }
  return views;
}

SavedParts::Content SavedParts::content() const {
  Content content;
  content.tensors = {.model = views(Kind::model, content.memory),
                     .optimizer = views(Kind::optimizer, content.memory),
                     .state = state_.run,
                     .ema = views(Kind::averages, content.memory)};
  return content;
}

std::size_t SavedParts::copied_bytes() const {
  std::size_t sum = 0;
  for (const Kind kind : stored::all_kinds) {
    const auto& stored = stored_.of(kind);
    for (std::size_t i = 0; i < stored.tensors.size(); ++i)
      if (stored.is_written_by(rank_, i) && parts_of(parts_, kind).own()[i].device().type == DeviceType::cpu)
        sum += round_up(static_cast<std::size_t>(stored.tensors[i].local_bytes(rank_)), checkpoint::copy_alignment);
  }
  return sum;
}

std::string SavedParts::placements() const {
  if (has(Kind::averages)) return to_json(stored_);
  auto without = stored_;
  without.of(Kind::averages) = {};
  return to_json(without);
}

}  // namespace ddprun::trainer
