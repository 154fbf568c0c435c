#include "ddprun/worker/trainer/state/hook_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "ddprun/common/log.h"
#include "ddprun/worker/parallel/group_tensors.h"

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

// Returns "optimizer" for "optimizer/fc1.weight.exp_avg"; empty for a hook's.
std::string_view kind_of(std::string_view name) {
  const auto slash = name.find('/');
  return slash == std::string_view::npos ? std::string_view() : name.substr(0, slash);
}

std::map<std::string_view, std::vector<HookState>> by_kind(const std::vector<HookState>& own) {
  std::map<std::string_view, std::vector<HookState>> kinds;
  for (const auto& state : own) kinds[kind_of(state.name)].push_back(state);
  return kinds;
}

// Returns for each kind the number of states that a file has of all ranks together.
std::map<std::string_view, std::size_t> counts_of(const checkpoint::SafetensorsFile& file) {
  std::map<std::string_view, std::size_t> counts;
  for (const auto& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    ++counts[kind_of(name.substr(std::min(name.size(), name.find('/') + 1)))];
  }
  return counts;
}

// Returns whether the file holds exactly the states of this kind that these ranks would have.
bool fits(const checkpoint::SafetensorsFile& file, std::string_view kind, int ranks,
          const std::vector<HookState>& own) {
  if (counts_of(file)[kind] != own.size() * static_cast<std::size_t>(ranks)) return false;
  for (int r = 0; r < ranks; ++r) {
    for (const auto& [name, span] : own) {
      const auto* info = file.find(name_at(r, name));
      if (!info || info->dtype != span.dtype || info->bytes() != span.bytes()) return false;
    }
  }
  return true;
}

enum class Restored : std::int64_t { none, each_rank, mean };

void warn_of_new_beginning(const checkpoint::Found& found, std::string_view kind) {
  log::warn(
      "the checkpoint {} has no state of each rank{} that fits parallel.strategy, parallel.hook and the buckets: it "
      "begins anew",
      found.folder.string(), kind.empty() ? "" : fmt::format(" ({})", kind));
}

// Makes rank 0's decision.
Restored decide(const checkpoint::Found& found, std::string_view kind, const std::vector<HookState>& own, int ranks) {
  const int saved = found.state.world_size;
  if (!found.has_hook || !fits(found.hook(), kind, saved, own)) {
    warn_of_new_beginning(found, kind);
    return Restored::none;
  }
  return saved == ranks ? Restored::each_rank : Restored::mean;
}

// Warns of states that the checkpoint has and this run does not.
void warn_of_unused(const checkpoint::Found& found, const std::map<std::string_view, std::vector<HookState>>& kinds) {
  if (!found.has_hook) return;
  const auto file = found.hook();
  for (const auto& [kind, count] : counts_of(file))
    if (!kinds.contains(kind)) warn_of_new_beginning(found, kind);
}

// Returns all ranks' parts, in rank order.
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

// Returns a copy on the host for memory of a device, otherwise the memory itself.
Tensor host_tensor(const Span& span) {
  return tensor_of_span(span).to(Device{});
}

// file: set at rank 0, null at others. The state is memory of the host.
void restore_on_host(const checkpoint::SafetensorsFile* file, int saved_ranks, Restored how, const HookState& state,
                     ProcessGroup& group) {
  if (how == Restored::each_rank) {
    const auto all = file ? parts(*file, state.name, group.size()) : std::vector<std::byte>();
    const auto count = state.span.count * static_cast<std::size_t>(group.size());
    group.scatter(file ? ConstSpan{all.data(), count, state.span.dtype} : ConstSpan{}, state.span, 0,
                  {.blocking = true});
  } else {
    if (file) read_mean(*file, state, saved_ranks);
    group.broadcast(state.span, 0, {.blocking = true});
  }
}

void restore(const checkpoint::SafetensorsFile* file, int saved_ranks, Restored how, const HookState& state,
             ProcessGroup& group) {
  const Tensor memory = host_tensor(state.span);
  restore_on_host(file, saved_ranks, how, {state.name, span_of_tensor(memory)}, group);
  tensor_of_span(state.span).copy_from(memory);
}

}  // namespace

GatheredHookState::GatheredHookState(const std::vector<HookState>& own, ProcessGroup& group) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const bool root = group.rank() == 0;
  for (const auto& [name, span] : own) {
    const auto& all = memory_.emplace_back(root ? span.bytes() * ranks : 0);
    const Span output = root ? Span{memory_.back().data(), span.count * ranks, span.dtype} : Span{};
    const Tensor memory = host_tensor(span);
    group.gather(span_of_tensor(memory), output, 0, {.blocking = true});
    for (std::size_t r = 0; root && r < ranks; ++r)
      views_.push_back({name_at(static_cast<int>(r), name),
                        span.dtype,
                        {static_cast<std::int64_t>(span.count)},
                        {all.data() + r * span.bytes(), span.bytes()}});
  }
}

void restore_hook_state(const checkpoint::Found* found, const std::vector<HookState>& own, ProcessGroup& group) {
  const auto kinds = by_kind(own);
  if (found) warn_of_unused(*found, kinds);
  std::optional<checkpoint::SafetensorsFile> file;
  if (found && found->has_hook) file.emplace(found->hook());
  for (const auto& [kind, states] : kinds) {
    std::vector<std::int64_t> decision{
        static_cast<std::int64_t>(found ? decide(*found, kind, states, group.size()) : Restored::none)};
    group.broadcast(span_of(decision), 0, {.blocking = true});
    const auto how = static_cast<Restored>(decision[0]);
    if (how == Restored::none) continue;
    for (const auto& state : states)
      restore(file ? &*file : nullptr, file ? found->state.world_size : 0, how, state, group);
  }
}

}  // namespace ddprun::trainer
