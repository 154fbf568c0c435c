#include "ddprun/worker/trainer/hook_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "ddprun/common/log.h"

namespace ddprun::trainer {
namespace {

std::string name_at(int rank, const std::string& name) {
  return fmt::format("rank{}/{}", rank, name);
}

std::vector<std::byte> read(const checkpoint::SafetensorsFile& file, const std::string& name) {
  const auto* info = file.find(name);
  std::vector<std::byte> bytes(info->bytes());
  file.read(*info, bytes);
  return bytes;
}

// Whether the file holds exactly the states that these ranks' hooks would have.
bool fits(const checkpoint::SafetensorsFile& file, int ranks, const std::vector<HookState>& own) {
  if (file.tensors().size() != own.size() * static_cast<std::size_t>(ranks)) return false;
  for (int r = 0; r < ranks; ++r) {
    for (const auto& [name, span] : own) {
      const auto* info = file.find(name_at(r, name));
      if (!info || info->dtype != span.dtype || info->bytes() != span.bytes()) return false;
    }
  }
  return true;
}

enum class Restored : std::int64_t { none, each_rank, mean };

// Rank 0's decision.
Restored decide(const checkpoint::Found* found, const std::vector<HookState>& own, int ranks) {
  if (!found || (!found->has_hook && own.empty())) return Restored::none;
  const auto saved = static_cast<int>(found->state.world_size);
  if (!found->has_hook || !fits(found->hook(), saved, own)) {
    log::warn(
        "the checkpoint {} has no state of each rank that fits parallel.strategy, parallel.hook and the buckets: it "
        "begins anew",
        found->folder.string());
    return Restored::none;
  }
  return saved == ranks ? Restored::each_rank : Restored::mean;
}

// All ranks' parts, in rank order.
std::vector<std::byte> parts(const checkpoint::SafetensorsFile& file, const std::string& name, int ranks) {
  std::vector<std::byte> all;
  for (int r = 0; r < ranks; ++r) {
    const auto part = read(file, name_at(r, name));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void read_mean(const checkpoint::SafetensorsFile& file, const HookState& state, int ranks) {
  const auto first = read(file, name_at(0, state.name));
  std::memcpy(state.span.data, first.data(), first.size());
  if (state.span.dtype != DType::float32) return;
  std::vector<double> sums(state.span.count);
  for (int r = 0; r < ranks; ++r) {
    const auto part = read(file, name_at(r, state.name));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      float value = 0;
      std::memcpy(&value, part.data() + i * sizeof value, sizeof value);
      sums[i] += static_cast<double>(value);
    }
  }
  auto* values = static_cast<float*>(state.span.data);
  for (std::size_t i = 0; i < sums.size(); ++i) values[i] = static_cast<float>(sums[i] / ranks);
}

}  // namespace

GatheredHookState::GatheredHookState(const std::vector<HookState>& own, ProcessGroup& group) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const bool root = group.rank() == 0;
  for (const auto& [name, span] : own) {
    const auto& all = memory_.emplace_back(root ? span.bytes() * ranks : 0);
    const Span output = root ? Span{memory_.back().data(), span.count * ranks, span.dtype} : Span{};
    group.gather(span, output, 0, {.blocking = true});
    for (std::size_t r = 0; root && r < ranks; ++r)
      views_.push_back({name_at(static_cast<int>(r), name),
                        span.dtype,
                        {static_cast<std::int64_t>(span.count)},
                        {all.data() + r * span.bytes(), span.bytes()}});
  }
}

void restore_hook_state(const checkpoint::Found* found, const std::vector<HookState>& own, ProcessGroup& group) {
  std::vector<std::int64_t> decision{static_cast<std::int64_t>(decide(found, own, group.size()))};
  group.broadcast(span_of(decision), 0, {.blocking = true});
  const auto restored = static_cast<Restored>(decision[0]);
  if (restored == Restored::none) return;
  std::optional<checkpoint::SafetensorsFile> file;
  if (found) file.emplace(found->hook());
  for (const auto& state : own) {
    if (restored == Restored::each_rank) {
      const auto all = file ? parts(*file, state.name, group.size()) : std::vector<std::byte>();
      const auto count = state.span.count * static_cast<std::size_t>(group.size());
      group.scatter(file ? ConstSpan{all.data(), count, state.span.dtype} : ConstSpan{}, state.span, 0,
                    {.blocking = true});
    } else {
      if (file) read_mean(*file, state, static_cast<int>(found->state.world_size));
      group.broadcast(state.span, 0, {.blocking = true});
    }
  }
}

}  // namespace ddprun::trainer
