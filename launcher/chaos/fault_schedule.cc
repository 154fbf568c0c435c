#include "launcher/chaos/fault_schedule.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "common/error.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds default_duration{10'000};
constexpr milliseconds longest = std::chrono::hours(24 * 365);

struct KindRow {
  std::string_view name;
  FaultKind kind;
  bool lasts;  // it has a duration
};
constexpr KindRow fault_kinds[] = {
    {"kill", FaultKind::kill, false},   {"freeze", FaultKind::freeze, true}, {"cut", FaultKind::cut, true},
    {"leave", FaultKind::leave, false}, {"join", FaultKind::join, false},
};

[[noreturn]] void refuse(std::string_view part, const char* expected) {
  throw make_error(Errc::usage, "--chaos: {}: expected {}", part, expected);
}

// Splits at the first separator; the second part is nullopt without one.
std::pair<std::string_view, std::optional<std::string_view>> split_once(std::string_view text, char separator) {
  const auto at = text.find(separator);
  if (at == std::string_view::npos) return {text, std::nullopt};
  return {text.substr(0, at), text.substr(at + 1)};
}

template <class Number>
std::optional<std::pair<Number, std::string_view>> leading_number(std::string_view text) {
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{}) return std::nullopt;
  return std::pair(value, std::string_view(end, text.data() + text.size()));
}

milliseconds parse_time(std::string_view text) {
  constexpr const char* expected = "a time with its unit, such as 500ms, 29s, 2m or 1h";
  const auto number = leading_number<double>(text);
  if (!number) refuse(text, expected);
  const auto unit = number->second;
  const double unit_ms = unit == "ms" ? 1 : unit == "s" ? 1e3 : unit == "m" ? 6e4 : unit == "h" ? 3.6e6 : 0;
  const double value = number->first * unit_ms;
  if (!(value >= 1)) refuse(text, expected);
  if (value > static_cast<double>(longest.count())) refuse(text, "a year at most");
  return milliseconds(static_cast<std::int64_t>(value));
}

const KindRow& row_of(std::string_view name, std::string_view rule) {
  const auto* const row = std::ranges::find(fault_kinds, name, &KindRow::name);
  if (row == std::end(fault_kinds))
    refuse(rule, "kill:TIME, freeze:TIME[/DURATION], cut:TIME[/DURATION], leave:TIME or join:TIME");
  return *row;
}

FaultRule parse_rule(std::string_view text) {
  const auto [name, times] = split_once(text, ':');
  const auto& row = row_of(name, text);
  if (!times) refuse(text, "the mean time between two faults, as in kill:29s");
  const auto [interval, duration] = split_once(*times, '/');
  if (duration && !row.lasts) refuse(text, "no duration: only a freeze and a cut have one");
  FaultRule rule{.kind = row.kind, .interval = parse_time(interval), .duration = {}};
  if (row.lasts) rule.duration = duration ? parse_time(*duration) : default_duration;
  return rule;
}

std::uint64_t parse_seed(std::string_view text) {
  const auto [name, value] = split_once(text, '=');
  const auto number = leading_number<std::uint64_t>(value.value_or(""));
  if (name != "seed" || !number || !number->second.empty()) refuse(text, "seed=NUMBER");
  return number->first;
}

}  // namespace

bool FaultPlan::has(FaultKind kind) const {
  return std::ranges::find(rules, kind, &FaultRule::kind) != rules.end();
}

FaultPlan parse_faults(std::string_view text) {
  FaultPlan plan;
  const auto [list, seed] = split_once(text, ';');
  if (seed) plan.seed = parse_seed(*seed);
  for (std::optional<std::string_view> rest = list; rest;) {
    const auto [rule, next] = split_once(*rest, ',');
    plan.rules.push_back(parse_rule(rule));
    rest = next;
  }
  if (plan.has(FaultKind::join) && !plan.has(FaultKind::leave))
    refuse(text, "leave:TIME beside join:TIME: a node joins again after it has left");
  return plan;
}

FaultSchedule::FaultSchedule(const FaultPlan& plan, int node, Time now) {
  for (const auto& rule : plan.rules) {
    std::seed_seq seeds{static_cast<std::uint32_t>(plan.seed), static_cast<std::uint32_t>(plan.seed >> 32),
                        static_cast<std::uint32_t>(node), static_cast<std::uint32_t>(entries_.size())};
    entries_.push_back({.rule = rule, .random = std::mt19937_64(seeds), .due = {}});
    postpone(entries_.back(), now);
  }
}

void FaultSchedule::postpone(Entry& entry, Time now) {
  constexpr double range = 18446744073709551616.0;  // 2^64
  const double factor = 0.5 + static_cast<double>(entry.random()) / range;
  entry.due = now + milliseconds(static_cast<std::int64_t>(factor * static_cast<double>(entry.rule.interval.count())));
}

void FaultSchedule::left(Time now) {
  if (std::exchange(away_, true)) return;
  for (auto& entry : entries_)
    if (entry.rule.kind == FaultKind::join) postpone(entry, now);
}

// Faults that were due meanwhile do not come all at once.
void FaultSchedule::joined(Time now) {
  if (!std::exchange(away_, false)) return;
  for (auto& entry : entries_)
    if (entry.rule.kind == FaultKind::leave || entry.due <= now) postpone(entry, now);
}

const FaultSchedule::Entry* FaultSchedule::earliest() const {
  const Entry* first = nullptr;
  for (const auto& entry : entries_)
    if ((entry.rule.kind == FaultKind::join) == away_ && (!first || entry.due < first->due)) first = &entry;
  return first;
}

FaultSchedule::Time FaultSchedule::next() const {
  const auto* first = earliest();
  return first ? first->due : Time::max();
}

std::optional<Fault> FaultSchedule::take(Time now) {
  if (next() > now) return std::nullopt;
  auto& entry = entries_[static_cast<std::size_t>(earliest() - entries_.data())];
  const Fault fault{.kind = entry.rule.kind, .duration = entry.rule.duration, .choice = entry.random()};
  postpone(entry, now);
  return fault;
}

}  // namespace ddprun
