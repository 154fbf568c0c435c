#include "worker/recovery/positions.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "common/error.h"

namespace ddprun {
namespace {

// The part of a state of which every rank has all, in a group of any size. A divided state has parts from 0 on.
constexpr int whole_part = -1;

// A way in which a group has divided the state: Holdings::parts and moves.
struct Division {
  std::vector<int> parts;
  int moves = 0;

  bool is_of(const Holdings& holdings) const { return holdings.parts == parts && holdings.moves == moves; }
};

// The first process that holds each part of the state after a step.
using Holders = std::map<int, int>;

bool holds(const Holdings& process, std::int64_t step, int part, bool applied) {
  return std::ranges::any_of(process.held, [&](const HeldPart& held) {
    return held.step == step && held.part == part && held.applied == applied;
  });
}

// Returns whether it holds a part of the state after the step, and all else that goes with the step.
bool has_result(const Holdings& process, std::int64_t step, bool applied) {
  return std::ranges::any_of(
      process.held, [&](const HeldPart& held) { return held.step == step && held.applied == applied && !held.ready; });
}

// Returns the newest step of which these processes hold every part.
std::optional<std::int64_t> newest_complete(std::span<const Holdings> processes, const std::vector<int>& parts,
                                            bool applied) {
  std::map<std::int64_t, std::set<int>> by_step;
  std::set<std::int64_t> standing;  // steps that some process has not just been ready for
  std::int64_t confirmed = -1;
  for (const Holdings& process : processes)
    if (process.parts == parts) confirmed = std::max(confirmed, process.confirmed);
  for (const Holdings& process : processes)
    for (const HeldPart& held : process.held)
      if (process.parts == parts && held.applied == applied && (applied || held.step <= confirmed)) {
        by_step[held.step].insert(held.part);
        if (!held.ready) standing.insert(held.step);
      }
  const std::size_t needed = std::set(parts.begin(), parts.end()).size();
  for (auto each = by_step.rbegin(); each != by_step.rend(); ++each)
    if (each->second.size() == needed && standing.contains(each->first)) return each->first;
  return std::nullopt;
}

Catchup catchup_to(std::int64_t step, std::span<const Holdings> processes, const Division& division, bool applied) {
  const auto& parts = division.parts;
  Catchup catchup{.step = step,
                  .source = -1,
                  .lagging = {},
                  .from = applied ? StateSource::applied : StateSource::copies,
                  .sources = {},
                  .reached = step,
                  .repeats = false,
                  .moves = division.moves};
  Holders holders;
  const auto has = [&](std::size_t rank, int part) {
    return processes[rank].parts == parts && holds(processes[rank], step, part, applied);
  };
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const Holdings& process = processes[rank];
    for (const int part : std::set(parts.begin(), parts.end()))
      if (has(rank, part)) holders.emplace(part, static_cast<int>(rank));
    const bool is_source = process.parts == parts && has_result(process, step, applied);
    if (is_source && catchup.source < 0) catchup.source = static_cast<int>(rank);
    if (is_source ? process.events_done != step : rank == 0) catchup.repeats = true;
    catchup.reached = std::max(catchup.reached, process.reached);
  }
  const bool is_divided = parts[0] != whole_part;
  if (is_divided && (parts.size() != processes.size() || division.moves > 0)) {
    for (const int part : parts) catchup.holders.push_back(holders.at(part));
    return catchup;
  }
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const int part = is_divided ? parts[rank] : whole_part;
    const int own = static_cast<int>(rank);
    catchup.sources.push_back(has(rank, part) ? own : holders.at(part));
    if (catchup.sources.back() != own) catchup.lagging.push_back(own);
  }
  return catchup;
}

void write(std::ostream& text, const Holdings& holdings) {
  text << holdings.reached << ' ' << holdings.confirmed << ' ' << holdings.moves << ' ' << holdings.parts.size();
  for (const int part : holdings.parts) text << ' ' << part;
  text << ' ' << holdings.held.size();
  for (const HeldPart& held : holdings.held)
    text << ' ' << held.step << ' ' << held.part << ' ' << held.applied << ' ' << held.ready;
}

Holdings read(std::istream& words) {
  Holdings holdings;
  std::size_t parts = 0, held = 0;
  words >> holdings.reached >> holdings.confirmed >> holdings.moves >> parts;
  for (int part = 0; parts > 0 && words >> part; --parts) holdings.parts.push_back(part);
  words >> held;
  for (HeldPart each; held > 0 && words >> each.step >> each.part >> each.applied >> each.ready; --held)
    holdings.held.push_back(each);
  return holdings;
}

// Returns the ways in which groups have divided the state, each once.
std::vector<Division> divisions_of(std::span<const Holdings> processes) {
  std::vector<Division> all;
  const auto add = [&](const Holdings& holdings) {
    if (holdings.parts.empty()) return;
    if (std::ranges::none_of(all, [&](const Division& each) { return each.is_of(holdings); }))
      all.push_back({holdings.parts, holdings.moves});
  };
  for (const Holdings& process : processes) {
    add(process);
    for (const Holdings& each : process.earlier) add(each);
  }
  return all;
}

// Returns what each process holds of one of them.
std::vector<Holdings> held_of(std::span<const Holdings> processes, const Division& division) {
  std::vector<Holdings> all;
  for (const Holdings& process : processes) {
    const auto found =
        std::ranges::find_if(process.earlier, [&](const Holdings& each) { return division.is_of(each); });
    if (division.is_of(process))
      all.push_back(process);
    else
      all.push_back(found == process.earlier.end() ? Holdings{} : *found);
    all.back().reached = process.reached;
    all.back().events_done = process.events_done;
  }
  return all;
}

}  // namespace

Holdings whole_state(Position position) {
  if (!position) return {};
  return {.parts = {whole_part}, .held = {{.step = *position, .part = whole_part}}, .reached = *position};
}

std::string encode(const Holdings& holdings) {
  std::ostringstream text;
  write(text, holdings);
  text << ' ' << holdings.events_done << ' ' << holdings.earlier.size();
  for (const Holdings& each : holdings.earlier) write(text << ' ', each);
  return text.str();
}

Holdings decode_holdings(std::string_view text) {
  std::istringstream words{std::string(text)};
  Holdings holdings = read(words);
  std::size_t earlier = 0;
  words >> holdings.events_done >> earlier;
  for (; earlier > 0 && words; --earlier) holdings.earlier.push_back(read(words));
  if (words.fail()) throw make_error(Errc::protocol, "a member of the group says '{}' of its state", text);
  return holdings;
}

std::optional<Catchup> compare_positions(std::span<const Holdings> processes) {
  std::optional<Catchup> best;
  for (const Division& division : divisions_of(processes)) {
    const auto held = held_of(processes, division);
    for (const bool applied : {true, false}) {
      const auto step = newest_complete(held, division.parts, applied);
      if (!step) continue;
      const bool is_applied_instead = best && *step == best->step && applied && best->from == StateSource::copies;
      if (!best || *step > best->step || is_applied_instead) best = catchup_to(*step, held, division, applied);
    }
  }
  return best;
}

}  // namespace ddprun
