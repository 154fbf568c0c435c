#include "worker/trainer/state/hook_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "common/log.h"
#include "worker/comm/collectives.h"
#include "worker/parallel/group_tensors.h"

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

// The states of all ranks, whose spans have no memory: ranks of different stages have different ones.
using StatesOfRanks = std::vector<std::vector<HookState>>;

StatesOfRanks states_of_ranks(const std::vector<HookState>& own, ProcessGroup& group) {
  std::ostringstream text;
  for (const auto& [name, span] : own) text << static_cast<int>(span.dtype) << ' ' << span.count << ' ' << name << '\n';
  StatesOfRanks ranks;
  for (const std::string& of_rank : all_gather_bytes(group, text.str())) {
    auto& states = ranks.emplace_back();
    std::istringstream lines(of_rank);
    int dtype = 0;
    std::size_t count = 0;
    while (lines >> dtype >> count) {
      auto& state = states.emplace_back(HookState{.span = {.count = count, .dtype = static_cast<DType>(dtype)}});
      std::getline(lines.ignore(), state.name);
    }
  }
  return ranks;
}

std::vector<HookState> of_kind(std::string_view kind, std::vector<HookState> states) {
  std::erase_if(states, [&](const auto& state) { return kind_of(state.name) != kind; });
  return states;
}

std::set<std::string> kinds_of(const StatesOfRanks& ranks) {
  std::set<std::string> kinds;
  for (const auto& states : ranks)
    for (const auto& state : states) kinds.emplace(kind_of(state.name));
  return kinds;
}

bool are_alike(const StatesOfRanks& ranks) {
  const auto is_same = [](const HookState& a, const HookState& b) {
    return a.name == b.name && a.span.count == b.span.count && a.span.dtype == b.span.dtype;
  };
  return std::ranges::all_of(ranks, [&](const auto& states) { return std::ranges::equal(states, ranks[0], is_same); });
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

// Returns whether the file holds exactly these states of each rank.
bool fits(const checkpoint::SafetensorsFile& file, std::string_view kind, const StatesOfRanks& ranks) {
  std::size_t count = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [name, span] : ranks[r]) {
      const auto* info = file.find(name_at(static_cast<int>(r), name));
      if (!info || info->dtype != span.dtype || info->bytes() != span.bytes()) return false;
      ++count;
    }
  }
  return counts_of(file)[kind] == count;
}

enum class Restored : std::int64_t { none, each_rank, mean };

void warn_of_new_beginning(const checkpoint::Found& found, std::string_view kind) {
  log::warn(
      "the checkpoint {} has no state of each rank{} that fits parallel.strategy, parallel.hook and the buckets: it "
      "begins anew",
      found.folder.string(), kind.empty() ? "" : fmt::format(" ({})", kind));
}

// Decides at the rank that reads the file. ranks: the states of this kind.
Restored decide(const checkpoint::Found& found, const checkpoint::SafetensorsFile* file, std::string_view kind,
                const StatesOfRanks& ranks) {
  const auto saved = static_cast<std::size_t>(found.state.world_size);
  if (file && saved == ranks.size() && fits(*file, kind, ranks)) return Restored::each_rank;
  if (file && saved != ranks.size() && are_alike(ranks) && fits(*file, kind, StatesOfRanks(saved, ranks[0])))
    return Restored::mean;
  warn_of_new_beginning(found, kind);
  return Restored::none;
}

// Warns of states that the checkpoint has and this run does not.
void warn_of_unused(const checkpoint::Found& found, const checkpoint::SafetensorsFile& file,
                    const std::set<std::string>& kinds) {
  for (const auto& [kind, count] : counts_of(file))
    if (!kinds.contains(std::string(kind))) warn_of_new_beginning(found, kind);
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

constexpr int tag = 0;

// Takes this rank's states, which are memory of the host, from the rank that has the file.
void restore_each(const checkpoint::SafetensorsFile* file, int reader, const StatesOfRanks& ranks,
                  const std::vector<HookState>& own, ProcessGroup& group) {
  for (std::size_t r = 0; file && r < ranks.size(); ++r) {
    if (static_cast<int>(r) == reader) continue;
    for (const auto& [name, span] : ranks[r]) {
      const auto bytes = read(*file, name_at(static_cast<int>(r), name));
      group.send(ConstSpan{bytes.data(), span.count, span.dtype}, static_cast<int>(r), tag, {.blocking = true});
    }
  }
  for (const auto& [name, span] : own) {
    if (!file) {
      group.recv(span, reader, tag, {.blocking = true});
      continue;
    }
    const auto bytes = read(*file, name_at(reader, name));
    std::memcpy(span.data, bytes.data(), bytes.size());
  }
}

void restore_mean(const checkpoint::SafetensorsFile* file, int reader, int saved_ranks,
                  const std::vector<HookState>& own, ProcessGroup& group) {
  for (const auto& state : own) {
    if (file) read_mean(*file, state, saved_ranks);
    group.broadcast(state.span, reader, {.blocking = true});
  }
}

// States with memory of the host in place of a device's.
class OnHost {
 public:
  explicit OnHost(const std::vector<HookState>& states) : targets_(states) {
    for (const auto& [name, span] : states) memory_.push_back(host_tensor(span));
  }
  std::vector<HookState> states() const {
    std::vector<HookState> all;
    for (std::size_t i = 0; i < targets_.size(); ++i) all.push_back({targets_[i].name, span_of_tensor(memory_[i])});
    return all;
  }
  void copy_back() {
    for (std::size_t i = 0; i < targets_.size(); ++i) tensor_of_span(targets_[i].span).copy_from(memory_[i]);
  }

 private:
  const std::vector<HookState> targets_;
  std::vector<Tensor> memory_;
};

}  // namespace

GatheredHookState::GatheredHookState(const std::vector<HookState>& own, ProcessGroup& group) {
  const auto ranks = states_of_ranks(own, group);
  const OnHost on_host(own);
  const auto sent = on_host.states();
  const bool is_root = group.rank() == 0;
  for (std::size_t i = 0; !is_root && i < sent.size(); ++i) group.send(sent[i].span, 0, tag, {.blocking = true});
  for (std::size_t r = 0; is_root && r < ranks.size(); ++r) {
    for (std::size_t i = 0; i < ranks[r].size(); ++i) {
      const Span& like = ranks[r][i].span;
      auto& memory = memory_.emplace_back(like.bytes());
      if (r == 0)
        std::memcpy(memory.data(), sent[i].span.data, memory.size());
      else
        group.recv(Span{memory.data(), like.count, like.dtype}, static_cast<int>(r), tag, {.blocking = true});
      views_.push_back({name_at(static_cast<int>(r), ranks[r][i].name),
                        like.dtype,
                        {static_cast<std::int64_t>(like.count)},
                        {memory.data(), memory.size()}});
    }
  }
}

void restore_hook_state(const checkpoint::Found& found, const std::vector<HookState>& own, ProcessGroup& group) {
  const auto ranks = states_of_ranks(own, group);
  const auto kinds = kinds_of(ranks);
  const int reader = found.has(checkpoint::hook_file) ? found.reader_of(checkpoint::hook_file) : 0;
  std::optional<checkpoint::SafetensorsFile> opened;
  if (group.rank() == reader && found.has(checkpoint::hook_file)) opened.emplace(found.folder / checkpoint::hook_file);
  const auto* file = opened ? &*opened : nullptr;
  if (file) warn_of_unused(found, *file, kinds);
  for (const auto& kind : kinds) {
    StatesOfRanks of_ranks;
    for (const auto& states : ranks) of_ranks.push_back(of_kind(kind, states));
    std::vector<std::int64_t> decision{
        static_cast<std::int64_t>(group.rank() == reader ? decide(found, file, kind, of_ranks) : Restored::none)};
    group.broadcast(span_of(decision), reader, {.blocking = true});
    const auto how = static_cast<Restored>(decision[0]);
    if (how == Restored::none) continue;
    OnHost memory(of_kind(kind, own));
    if (how == Restored::each_rank)
      restore_each(file, reader, of_ranks, memory.states(), group);
    else
      restore_mean(file, reader, found.state.world_size, memory.states(), group);
    memory.copy_back();
  }
}

}  // namespace ddprun::trainer
