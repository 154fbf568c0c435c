#include "worker/parallel/sharding/redistribution_plan.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <queue>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "common/error.h"

namespace ddprun::sharding {
namespace {

// Bounds the work for a fragment that many processes have or want: it is then sent in fewer chunks.
constexpr std::int64_t most_chunk_ends = 4096;  // 64 processes in 64 chunks

void check(const StateLayout& layout, std::size_t tensors, std::string_view name) {
  if (layout.placements.size() != tensors)
    throw make_error(Errc::usage, "{} placements for {} tensors in the layout \"{}\"", layout.placements.size(),
                     tensors, name);
  for (const Placement& placement : layout.placements)
    if (!layout.processes.empty() && std::ssize(layout.processes) != placement.mesh->ranks())
      throw make_error(Errc::usage, "{} processes for {} ranks in the layout \"{}\"", layout.processes.size(),
                       placement.mesh->ranks(), name);
  if (!layout.writers.empty() && layout.writers.size() != tensors)
    throw make_error(Errc::usage, "writers of {} tensors, not of {}, in the layout \"{}\"", layout.writers.size(),
                     tensors, name);
}

// The executor has one part of each tensor a process: no process has two ranks. Files may have one reader.
void check_processes(const StateLayout& layout, bool may_repeat, std::string_view name) {
  std::set<int> seen;
  for (const int process : layout.processes) {
    if (process == absent) continue;
    if (process < 0) throw make_error(Errc::usage, "there is no process {} in the layout \"{}\"", process, name);
    if (!seen.insert(process).second && !may_repeat)
      throw make_error(Errc::usage, "process {} has two ranks in the layout \"{}\"", process, name);
  }
}

int process_of(const StateLayout& layout, int rank) {
  return layout.processes.empty() ? rank : layout.processes[static_cast<std::size_t>(rank)];
}

std::vector<int> living(const StateLayout& layout, const std::vector<int>& ranks) {
  std::vector<int> processes;
  for (const int rank : ranks)
    if (const int process = process_of(layout, rank); process != absent) processes.push_back(process);
  std::ranges::sort(processes);
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  return processes;
}

// The living processes that have a part. Many tensors have them in common.
class Holders {
 public:
  explicit Holders(const StateLayout& layout) : layout_(layout) {}

  const StateLayout& layout() const { return layout_; }
  const std::vector<int>& of(const PlacedTensor& placed, const PlacedTensor::Part& part) {
    const auto [place, is_new] = known_.try_emplace({placed.placement().mesh.get(), placed.coordinates(part)});
    if (is_new) place->second = living(layout_, placed.holders(part));
    return place->second;
  }

 private:
  const StateLayout& layout_;
  std::map<std::pair<const MeshShape*, PlacedTensor::Coordinates>, std::vector<int>> known_;
};

// The parts of a tensor in a layout as ranges that follow each other and cover all of it.
class Tiling {
 public:
  struct Tile {
    IndexRange range;
    std::int64_t local = 0;
    int part = 0;
  };

  Tiling(Holders& holders, const TensorSpec& spec, std::size_t tensor)
      : layout_(holders.layout()), placed_(spec, layout_.placements[tensor]), parts_(placed_.parts()) {
    if (!layout_.writers.empty()) writers_ = layout_.writers[tensor];
    if (!layout_.writers.empty() && writers_.size() != parts_.size())
      throw make_error(Errc::usage, "{} has {} parts and {} writers", spec.name, parts_.size(), writers_.size());
    for (const int writer : writers_) processes_of_writers_.push_back(living(layout_, {writer}));
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      for (const HeldRange& range : parts_[p].ranges) tiles_.push_back({range.whole, range.local, static_cast<int>(p)});
      processes_.push_back(writers_.empty() ? &holders.of(placed_, parts_[p]) : &processes_of_writers_[p]);
    }
    std::ranges::sort(tiles_, {}, [](const Tile& tile) { return tile.range.begin; });
  }

  // Returns the tile with this element; calls are ascending.
  const Tile& at(std::int64_t element) {
    while (tiles_[next_].range.end <= element) ++next_;
    return tiles_[next_];
  }
  const std::vector<int>& processes(int part) const { return *processes_[static_cast<std::size_t>(part)]; }
  // REQUIRES: the process is among them.
  int rank_of(int part, int process) const {
    if (!writers_.empty()) return writers_[static_cast<std::size_t>(part)];
    const auto ranks = placed_.holders(parts_[static_cast<std::size_t>(part)]);
    return *std::ranges::find_if(ranks, [&](int rank) { return process_of(layout_, rank) == process; });
  }

 private:
  const StateLayout& layout_;
  const PlacedTensor placed_;
  const std::vector<PlacedTensor::Part> parts_;
  std::vector<int> writers_;                            // by part; empty if there are none in the layout
  std::vector<std::vector<int>> processes_of_writers_;  // by part
  std::vector<const std::vector<int>*> processes_;      // by part
  std::vector<Tile> tiles_;
  std::size_t next_ = 0;
};

// Elements that follow one another in all layouts.
struct Segment {
  IndexRange range;
  std::int64_t read_offset = 0;
  std::int64_t write_offset = 0;
};

// All elements of a tensor that the same processes have and the same ones are to have.
struct Fragment {
  bool is_in_file = false;
  int held_part = 0;
  int wanted_part = 0;
  bool is_own = false;  // true if this process has it, or is to have it
  std::int64_t count = 0;
  std::vector<Segment> segments;  // those of this process
};

// A chunk of a fragment from one process to another, in elements from the start of the fragment.
struct Sending {
  int source = 0, destination = 0, step = 0;
  std::int64_t begin = 0, end = 0;
};

// Chooses the senders: shares the bytes among processes, over all tensors.
class SenderChoice {
 public:
  // Calls emit(Sending) for what the receiving processes get.
  template <class Emit>
  void share(std::int64_t count, std::int64_t element_bytes, const std::vector<int>& have, const std::vector<int>& want,
             Emit emit) {
    const std::int64_t chunks = chunks_of(count, std::ssize(have), std::ssize(want));
    for (std::int64_t c = 0; c < chunks; ++c) {
      const std::int64_t begin = count * c / chunks, end = count * (c + 1) / chunks;
      const std::int64_t bytes = (end - begin) * element_bytes;
      std::vector<Sender> ready;
      for (const int process : have) ready.emplace_back(sent(process), 0, process);
      Senders senders({}, std::move(ready));
      // Those that have sent least get it first, so that they are the ones that forward it.
      std::vector<std::pair<std::int64_t, int>> receivers;
      for (const int process : want) receivers.emplace_back(sent(process), process);
      std::ranges::sort(receivers);
      for (const auto& [sent_before, process] : receivers) {
        const auto [load, step, source] = senders.top();
        senders.pop();
        emit(Sending{source, process, step, begin, end});
        sent(source) += bytes;
        senders.push({sent(source), step, source});
        senders.push({sent_before, step + 1, process});
      }
    }
  }

 private:
  using Sender = std::tuple<std::int64_t, int, int>;  // bytes so far, the first step in which it can send, process
  using Senders = std::priority_queue<Sender, std::vector<Sender>, std::greater<>>;

  static std::int64_t chunks_of(std::int64_t count, std::int64_t have, std::int64_t want) {
    if (have == 1 && want == 1) return 1;
    return std::min({count, have + want, std::max<std::int64_t>(1, most_chunk_ends / (have + want))});
  }
  std::int64_t& sent(int process) {
    const auto index = static_cast<std::size_t>(process);
    if (index >= sent_.size()) sent_.resize(index + 1);
    return sent_[index];
  }

  std::vector<std::int64_t> sent_;  // bytes, by process
};

// One process' part of a plan, tensor by tensor.
class Planner {
 public:
  Planner(const Redistribution& redistribution, int process)
      : given_(redistribution), process_(process), from_(given_.from), to_(given_.to) {
    if (given_.files) files_.emplace(*given_.files);
  }

  RedistributionPlan plan() {
    for (const std::size_t tensor : order()) plan_tensor(tensor);
    std::ranges::sort(plan_.transfers, {}, [](const Transfer& t) {
      return std::tuple(t.tensor, t.step, t.range.begin, t.source, t.destination);
    });
    std::ranges::sort(plan_.missing, {}, [](const MissingRange& m) { return std::pair(m.tensor, m.range.begin); });
    return std::move(plan_);
  }

 private:
  // Returns the order of tensors: those that fewest processes have come first; the others can be shared around them.
  std::vector<std::size_t> order() {
    std::vector<std::tuple<std::size_t, std::int64_t, std::size_t>> keys;
    for (std::size_t t = 0; t < given_.tensors.size(); ++t) {
      const PlacedTensor placed(given_.tensors[t], given_.from.placements[t]);
      const PlacedTensor::Part first{std::vector<int>(placed.placement().shards.size()), 0, {}};
      keys.emplace_back(from_.of(placed, first).size(), -placed.spec().elements(), t);
    }
    std::ranges::sort(keys);
    std::vector<std::size_t> tensors;
    for (const auto& key : keys) tensors.push_back(std::get<2>(key));
    return tensors;
  }

  // The tilings of one tensor.
  struct Tilings {
    Tiling from, to;
    std::optional<Tiling> files;
    const Tiling& source(const Fragment& fragment) const { return fragment.is_in_file ? *files : from; }
  };

  void plan_tensor(std::size_t tensor) {
    const TensorSpec& spec = given_.tensors[tensor];
    if (spec.elements() == 0) return;
    Tilings tilings{Tiling(from_, spec, tensor), Tiling(to_, spec, tensor), {}};
    if (files_) tilings.files.emplace(*files_, spec, tensor);
    std::vector<Fragment> fragments = fragments_of(tensor, tilings);
    std::ranges::stable_sort(fragments, {}, [&](const Fragment& fragment) {
      return tilings.source(fragment).processes(fragment.held_part).size();
    });
    for (const Fragment& fragment : fragments) plan_fragment(tensor, fragment, tilings.source(fragment), tilings.to);
  }

  // Returns the fragments, and notes missing ranges.
  std::vector<Fragment> fragments_of(std::size_t tensor, Tilings& tilings) {
    const std::int64_t elements = given_.tensors[tensor].elements();
    std::vector<Fragment> fragments;
    std::unordered_map<std::uint64_t, std::size_t> known;
    for (std::int64_t begin = 0, end = 0; begin < elements; begin = end) {
      const Tiling::Tile& wanted = tilings.to.at(begin);
      const Tiling::Tile* held = &tilings.from.at(begin);
      end = std::min(wanted.range.end, held->range.end);
      const bool is_in_file = tilings.files && tilings.from.processes(held->part).empty();
      if (is_in_file) {
        held = &tilings.files->at(begin);
        end = std::min(end, held->range.end);
      }
      const Tiling& source = is_in_file ? *tilings.files : tilings.from;
      if (tilings.to.processes(wanted.part).empty()) continue;
      if (source.processes(held->part).empty()) {
        record_missing(tensor, {begin, end});
        continue;
      }
      const auto [place, is_new] = known.try_emplace(key_of(is_in_file, held->part, wanted.part), fragments.size());
      if (is_new) fragments.push_back(fragment_of(is_in_file, held->part, wanted.part, source, tilings.to));
      Fragment& fragment = fragments[place->second];
      fragment.count += end - begin;
      if (fragment.is_own)
        fragment.segments.push_back({.range = {begin, end},
                                     .read_offset = held->local + begin - held->range.begin,
                                     .write_offset = wanted.local + begin - wanted.range.begin});
    }
    return fragments;
  }

  static std::uint64_t key_of(bool is_in_file, int held_part, int wanted_part) {
    return static_cast<std::uint64_t>(held_part) << 32U | static_cast<std::uint64_t>(wanted_part) << 1U |
           static_cast<std::uint64_t>(is_in_file);
  }
  Fragment fragment_of(bool is_in_file, int held_part, int wanted_part, const Tiling& source, const Tiling& to) const {
    const auto has_this = [&](const std::vector<int>& all) { return std::ranges::binary_search(all, process_); };
    const bool is_own = has_this(source.processes(held_part)) || has_this(to.processes(wanted_part));
    return {is_in_file, held_part, wanted_part, is_own, 0, {}};
  }

  void record_missing(std::size_t tensor, const IndexRange& range) {
    auto& missing = plan_.missing;
    if (!missing.empty() && missing.back().tensor == tensor && missing.back().range.end == range.begin)
      missing.back().range.end = range.end;
    else
      missing.push_back({tensor, range});
  }

  void plan_fragment(std::size_t tensor, const Fragment& fragment, const Tiling& source, const Tiling& to) {
    const std::vector<int>& have = source.processes(fragment.held_part);
    const std::vector<int>& wanting = to.processes(fragment.wanted_part);
    std::vector<int> want;
    std::ranges::set_difference(wanting, have, std::back_inserter(want));
    if (std::ranges::binary_search(have, process_) && std::ranges::binary_search(wanting, process_))
      note(tensor, fragment, source, {process_, process_, 0, 0, fragment.count});
    if (want.empty()) return;
    const auto bytes = static_cast<std::int64_t>(size_of(given_.tensors[tensor].dtype));
    senders_.share(fragment.count, bytes, have, want, [&](const Sending& sending) {
      if (sending.source == process_ || sending.destination == process_) note(tensor, fragment, source, sending);
    });
  }

  void note(std::size_t tensor, const Fragment& fragment, const Tiling& source, const Sending& sending) {
    const bool reads_file = fragment.is_in_file && sending.step == 0;
    const int file = reads_file ? source.rank_of(fragment.held_part, sending.source) : absent;
    std::int64_t before = 0;  // number of elements of the segments so far
    for (const Segment& segment : fragment.segments) {
      const std::int64_t begin = std::max(sending.begin - before, std::int64_t{0});
      const std::int64_t end = std::min(sending.end - before, segment.range.count());
      before += segment.range.count();
      if (begin >= end) continue;
      plan_.transfers.push_back({.tensor = tensor,
                                 .step = sending.step,
                                 .range = {segment.range.begin + begin, segment.range.begin + end},
                                 .source = sending.source,
                                 .destination = sending.destination,
                                 .file = file,
                                 .read_offset = (sending.step > 0 ? segment.write_offset : segment.read_offset) + begin,
                                 .write_offset = segment.write_offset + begin});
    }
  }

  const Redistribution& given_;
  const int process_;
  Holders from_, to_;
  std::optional<Holders> files_;
  SenderChoice senders_;
  RedistributionPlan plan_;
};

}  // namespace

RedistributionPlan plan_redistribution(const Redistribution& redistribution, int process) {
  const std::size_t tensors = redistribution.tensors.size();
  check(redistribution.from, tensors, "from");
  check(redistribution.to, tensors, "to");
  check_processes(redistribution.from, false, "from");
  check_processes(redistribution.to, false, "to");
  if (redistribution.files) {
    check(*redistribution.files, tensors, "files");
    check_processes(*redistribution.files, true, "files");
  }
  return Planner(redistribution, process).plan();
}

}  // namespace ddprun::sharding
