#include "launcher/dashboard/job_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "common/printable.h"
#include "common/signal_name.h"
#include "launcher/dashboard/collectives.h"

namespace ddprun::dashboard {
namespace {

double seconds_of(Milliseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

// A view without other changes changes at this interval, so that clients know that the agent is alive.
constexpr Milliseconds beat{5'000};
constexpr Milliseconds usage_interval{4'000};  // between two messages about the use of nodes
constexpr Milliseconds point_interval{200};    // the least time between two points of the curves

// Rounds to two digits, so that a rank does not change with every step; less than 10 us becomes 0.
double to_two_digits(double lateness) {
  if (!std::isfinite(lateness) || lateness < 1e-5) return std::isfinite(lateness) ? 0 : lateness;
  const double unit = std::pow(10, std::floor(std::log10(lateness)) - 1);
  return std::round(lateness / unit) * unit;
}

// Returns whether the numbers are equal, or both unknown.
bool same(double one, double other) {
  return one == other || (std::isnan(one) && std::isnan(other));
}

bool same(const CollectiveView& one, const CollectiveView& other) {
  return one.group == other.group && one.operation == other.operation && one.bytes == other.bytes &&
         one.count == other.count && one.seconds == other.seconds && same(one.median, other.median) &&
         same(one.bus_bandwidth, other.bus_bandwidth) && one.slowest == other.slowest && same(one.wait, other.wait);
}

RankView::State state_of(const WorkerReport& worker) {
  if (worker.state == WorkerReport::State::running) return RankView::State::running;
  if (worker.state == WorkerReport::State::stopped) return RankView::State::stopped;
  return worker.exit_code == 0 && worker.signal_number == 0 ? RankView::State::succeeded : RankView::State::failed;
}

std::array<double, 3> shares_of(const TrainingRecord& record) {
  const double all = record.step_seconds();
  if (all <= 0) return {TrainingRecord::unknown, 0, 0};
  const auto percent = [&](double part) { return std::round(100 * part / all) / 100; };
  return {percent(record.data), percent(record.compute), percent(record.communication)};
}

// A worker that fails because another one is silent reports that.
bool is_freeze(std::string_view text) {
  return text.find("frozen") != std::string_view::npos || text.find("uninterruptible sleep") != std::string_view::npos;
}

std::array<double, 3> shares_of(const TrainingReport& report) {
  if (!std::isfinite(report.data)) return {TrainingRecord::unknown, 0, 0};
  const auto percent = [](double part) { return std::round(100 * part) / 100; };
  return {percent(report.data), percent(report.compute), percent(report.communication)};
}

// Returns the fault elsewhere that the server gives as the reason for a round.
std::string fault_in(std::string_view reason) {
  if (is_freeze(reason) && reason.find("cut off") == std::string_view::npos) return "freeze";
  if (reason.find("no heartbeat") != std::string_view::npos) return "cut";
  if (reason.find("failed: out of memory") != std::string_view::npos) return "oom";
  if (reason.find("failed: ended by SIG") != std::string_view::npos) return "signal";
  if (reason.find("failed: exit code") != std::string_view::npos) return "exit";
  return "membership";
}

// Returns whether a change of the round has interrupted the step: otherwise the training goes on after one.
bool is_loss(std::string_view reason) {
  return reason.find(" lost: ") != std::string_view::npos;
}

std::string fault_of(const WorkerFailure& failure) {
  if (failure.cause.starts_with("out of memory")) return "oom";
  if (is_freeze(failure.cause) || is_freeze(failure.message)) return "freeze";
  return failure.signal_number != 0 ? "signal" : "exit";
}

std::string fault_text(const WorkerFailure& failure) {
  const auto end = failure.signal_number != 0 ? "was ended by " + signal_name(failure.signal_number)
                                              : fmt::format("exited with {}", failure.exit_code);
  auto text = fmt::format("rank {} on host {} ", failure.rank, failure.host);
  const auto& why = failure.cause.empty() ? failure.message : failure.cause;
  // A cause may begin with the way in which the process ended.
  if (why.starts_with("ended by ")) return printable(text + "was " + why, 400);
  text += end;
  if (!why.empty()) text += ": " + why.substr(0, why.find('\n'));
  return printable(text, 400);
}

template <class T>
void keep_newest(std::vector<T>& items, std::size_t limit, Version& oldest) {
  if (items.size() <= limit) return;
  const auto surplus = items.begin() + static_cast<std::ptrdiff_t>(items.size() - limit);
  oldest = std::max(oldest, (surplus - 1)->version);
  items.erase(items.begin(), surplus);
}

}  // namespace

JobModel::JobModel(JobFacts facts, Milliseconds now, HistoryLimits limits) : limits_(limits), accounted_(now) {
  view_.facts = std::move(facts);
  view_.began = now;
  changed(now);
}

void JobModel::changed(Milliseconds now) {
  view_.now = changed_at_ = std::max(view_.now, now);
  ++view_.version;
}

void JobModel::account(Milliseconds until) {
  const auto passed = std::max(Milliseconds(0), until - accounted_);
  view_.seconds.at(static_cast<std::size_t>(part_)) += seconds_of(passed);
  accounted_ += passed;
}

void JobModel::move(double seconds, Part from, Part to) {
  auto& source = view_.seconds.at(static_cast<std::size_t>(from));
  const double moved = std::clamp(seconds, 0.0, source);
  source -= moved;
  view_.seconds.at(static_cast<std::size_t>(to)) += moved;
}

void JobModel::enter(Milliseconds now, Part part, State state) {
  account(now);
  part_ = part;
  view_.state = state;
}

void JobModel::add_event(Milliseconds time, std::string kind, std::string text) {
  view_.events.push_back({.version = view_.version,
                          .time = time,
                          .kind = std::move(kind),
                          .text = std::move(text),
                          .step = view_.training ? view_.training->step : -1});
  keep_newest(view_.events, limits_.events, oldest_);
}

void JobModel::waiting(Milliseconds now, const std::string& text) {
  changed(now);
  view_.waiting_for = text;
  if (!round_) view_.state = State::forming;
  add_event(now, "node", text);
}

void JobModel::append_generation(Milliseconds now, GenerationView generation) {
  if (generation.recovers) {
    recovered(generation.detect, "detect", detect_);
    phase_began_ = noticed_.value_or(now);
    ++view_.totals.recoveries[std::exchange(fault_, "membership")];
  }
  detect_ = Milliseconds(-1);
  view_.generations.push_back(std::move(generation));
  if (view_.generations.size() > limits_.generations) view_.generations.erase(view_.generations.begin());
  generations_changed_ = view_.version;
}

void JobModel::round_proposed(Milliseconds now, const RoundProposed& proposed) {
  changed(now);
  view_.waiting_for.clear();
  if (round_)
    enter(now, Part::agree, State::recovering);
  else
    enter(now, Part::startup, State::starting);
  // For a node that joins a job in its third round, neither the time nor the fault of the recovery is known.
  const bool recovers = round_.has_value();
  if (fault_ == "membership") fault_ = fault_in(proposed.reason);
  append_generation(
      now, {.generation = proposed.round.generation, .reason = proposed.reason, .proposed = now, .recovers = recovers});
  add_event(now, "round", fmt::format("generation {}: {}", proposed.round.generation, proposed.reason));
}

void JobModel::round_started(Milliseconds now, const Round& round) {
  changed(now);
  const bool first = !round_;
  round_ = round;
  stepped_ = false;
  taken_ = {};
  told_.clear();
  leader_ = 0;
  enter(now, first ? Part::startup : Part::restart, first ? State::running : State::recovering);
  view_.generation = round.generation;
  view_.restarts_used = round.restarts_used;
  lay_out(now, round, first);
  generation_started(now, round);
}

// The workers of this node keep what is known of them.
void JobModel::round_changed(Milliseconds now, const RoundChanged& change) {
  if (!round_) return;
  changed(now);
  std::vector<RankView> own;
  for (int local_rank = 0; const auto* rank = own_rank(local_rank); ++local_rank) own.push_back(*rank);
  round_ = change.round;
  lay_out(now, change.round, false);
  for (int local_rank = 0; local_rank < static_cast<int>(own.size()); ++local_rank) {
    auto& former = own[static_cast<std::size_t>(local_rank)];
    auto* rank = own_rank(local_rank);
    former.node = rank->node;
    former.version = view_.version;
    *rank = former;
  }
  if (is_loss(change.reason)) {
    if (fault_ == "membership") fault_ = fault_in(change.reason);
    return go_on(now, change.reason);
  }
  add_event(now, "round", fmt::format("generation {}: {}", change.round.generation, change.reason));
}

// The workers that run recover, in the same generation.
void JobModel::go_on(Milliseconds now, const std::string& reason) {
  const bool first = view_.generations.empty() || view_.generations.back().generation != round_->generation;
  append_generation(now, {.generation = round_->generation,
                          .replacement = first ? 1 : view_.generations.back().replacement + 1,
                          .reason = reason,
                          .proposed = now,
                          .recovers = true});
  add_event(now, "round", fmt::format("generation {}: {}", round_->generation, reason));
  enter(now, Part::heal, State::recovering);
  stepped_ = false;
  generation_started(now, *round_);
}

void JobModel::lay_out(Milliseconds now, const Round& round, bool first) {
  const int former = std::exchange(view_.world_size, round.world_size);
  view_.nodes.clear();
  view_.ranks.assign(static_cast<std::size_t>(round.world_size), {.version = view_.version});
  for (const auto& member : round.members) {
    view_.nodes.push_back({.host = member.host,
                           .address = member.address,
                           .group_rank = member.group_rank,
                           .first_rank = member.first_rank,
                           .workers = member.nproc});
    for (int local = 0; local < member.nproc; ++local) {
      auto& rank = view_.ranks.at(static_cast<std::size_t>(member.first_rank + local));
      rank.node = member.group_rank;
      rank.local_rank = local;
    }
  }
  if (!first && former != round.world_size)
    add_event(now, "layout", fmt::format("{} ranks, where there were {}", round.world_size, former));
  // Ranks of a world of another size cannot be sent as changes.
  oldest_ = view_.version;
  nodes_changed_ = view_.version;
}

void JobModel::workers_replaced(Milliseconds now, const std::vector<int>& local_ranks, int restarts_used) {
  if (!round_) return;
  changed(now);
  round_->restarts_used = view_.restarts_used = restarts_used;
  ++view_.replacements;
  go_on(now, "replacements for the failed workers; the others go on");
  for (const int local_rank : local_ranks) {
    told_.erase(local_rank);
    if (auto* rank = own_rank(local_rank)) {
      ++rank->replacements;
      rank->version = view_.version;
    }
  }
  if (std::find(local_ranks.begin(), local_ranks.end(), leader_) != local_ranks.end()) change_leader();
}

// Every rank counts the steps of the whole job. So the totals continue with the counts of the new leader since its
// start, less what it has counted beyond the last step of the former one.
void JobModel::change_leader() {
  if (told_.empty()) return;
  const auto& [local_rank, record] = *told_.begin();
  leader_ = local_rank;
  if (taken_.pid == 0 || record.steps == 0) {
    taken_ = {.pid = record.pid};
    return;
  }
  const auto former = std::exchange(taken_, record);
  const auto ahead = taken_.step - former.step;
  const auto of_steps = [&](std::int64_t count) { return count / taken_.steps * ahead; };
  taken_.samples -= of_steps(taken_.samples);
  taken_.tokens -= of_steps(taken_.tokens);
  taken_.steps -= ahead;
}

void JobModel::generation_started(Milliseconds now, const Round& round) {
  generations_changed_ = view_.version;
  if (view_.generations.empty()) return;
  auto& generation = view_.generations.back();
  generation.started = now;
  generation.world_size = round.world_size;
  generation.restarts_used = round.restarts_used;
  if (generation.recovers) recovered(generation.agree, "agree", now - phase_began_);
  phase_began_ = now;
  noticed_.reset();
}

void JobModel::recovered(Milliseconds& duration, const char* phase, Milliseconds value) {
  if (value.count() < 0) return;
  duration = value;
  view_.totals.recovery_times[phase].push_back(value);
}

RankView* JobModel::own_rank(int local_rank) {
  if (!round_ || round_->self < 0) return nullptr;
  const auto& self = round_->members.at(static_cast<std::size_t>(round_->self));
  const auto rank = static_cast<std::size_t>(self.first_rank + local_rank);
  return local_rank < self.nproc && rank < view_.ranks.size() ? &view_.ranks[rank] : nullptr;
}

void JobModel::update(RankView& rank, const RankView& next) {
  const bool equal = rank.pid == next.pid && rank.state == next.state && rank.started == next.started &&
                     same(rank.lateness, next.lateness) && same(rank.shares[0], next.shares[0]) &&
                     rank.shares[1] == next.shares[1] && rank.shares[2] == next.shares[2];
  if (equal) return;
  rank = next;
  rank.version = view_.version;
}

void JobModel::workers(Milliseconds now, const std::vector<WorkerReport>& reports) {
  changed(now);
  for (const auto& worker : reports) {
    auto* rank = own_rank(worker.local_rank);
    if (!rank) continue;
    auto next = *rank;
    if (next.pid != worker.pid) {
      next.lateness = TrainingRecord::unknown;  // the old value was its predecessor's
      next.shares = RankView().shares;
      next.started = now;
    }
    next.pid = worker.pid;
    next.state = state_of(worker);
    update(*rank, next);
  }
}

void JobModel::failed(Milliseconds now, const std::vector<WorkerFailure>& failures) {
  if (failures.empty()) return;
  changed(now);
  const auto& cause = failures.front();
  const auto happened = std::clamp(Milliseconds(cause.time_us / 1000), accounted_, std::max(accounted_, now));
  // The workers' clock is this host's; a failure without a time of its own was observed at once.
  if (cause.time_us > 0) detect_ = now - happened;
  enter(happened, Part::detect, State::recovering);
  enter(now, Part::agree, State::recovering);
  noticed_ = now;
  fault_ = fault_of(cause);
  for (const auto& failure : failures)
    if (!failure.consequence || &failure == &cause) add_event(now, "fault", fault_text(failure));
}

void JobModel::contact_broken(Milliseconds now, const std::string& text) {
  changed(now);
  enter(now, Part::agree, State::recovering);
  noticed_ = now;
  fault_ = "cut";
  add_event(now, "fault", text);
}

void JobModel::note(Milliseconds now, const std::string& kind, const std::string& text) {
  changed(now);
  add_event(now, kind, text);
}

void JobModel::left(Milliseconds now) {
  changed(now);
  enter(now, Part::startup, State::forming);
  add_event(now, "node", "this node has left the job and may join again");
}

void JobModel::ended(Milliseconds now, const JobResult& result) {
  if (view_.state == State::succeeded || view_.state == State::failed) return;
  changed(now);
  enter(now, Part::idle, result.success ? State::succeeded : State::failed);
  view_.result = printable(result.reason, 400);
  add_event(now, "end", view_.result);
}

void JobModel::training(Milliseconds now, int local_rank, const TrainingRecord& record) {
  auto* rank = own_rank(local_rank);
  const auto last = told_.find(local_rank);
  const bool known = last != told_.end() && last->second.time_ms == record.time_ms && last->second.pid == record.pid;
  if (!rank || known) return;
  told_[local_rank] = record;
  changed(now);
  auto next = *rank;
  next.lateness = to_two_digits(record.lateness);
  next.shares = shares_of(record);
  update(*rank, next);
  if (local_rank == leader_) lead(now, record);
}

// One rank of the node reports for the whole job: the first, or another one after its process was replaced.
void JobModel::lead(Milliseconds now, const TrainingRecord& record) {
  const bool same_process = taken_.pid == record.pid;
  const bool new_step = !view_.training || view_.training->step != record.step || !same_process;
  const bool evaluated =
      record.evaluation_step > 0 && !(same_process && taken_.evaluation_step == record.evaluation_step);
  view_.training = record;
  record_checkpoint(record);
  // Steps that are repeated after a return to an earlier one are not counted again.
  const bool repeats = record.step <= highest_ && Milliseconds(record.first_step_ms) >= phase_began_;
  const bool stepped = record.steps > (same_process ? taken_.steps : 0) || repeats;
  if (stepped && !std::exchange(stepped_, true)) first_step(now, record);
  highest_ = std::max(highest_, record.step);
  const bool apart = view_.points.empty() || now - view_.points.back().time >= point_interval;
  if (new_step && record.steps > 0 && apart) add_point(now, record);
  if (evaluated) add_evaluation(record);
  take_totals(record);
  if (part_ == Part::replay && record.step >= view_.generations.back().from_step) regained(now);
}

void JobModel::first_step(Milliseconds noticed, const TrainingRecord& record) {
  // A process that was kept may report the first step of the process group before.
  const Milliseconds told(record.first_step_ms);
  const auto now = told < phase_began_ ? noticed : std::clamp(told, std::min(accounted_, noticed), noticed);
  const auto before = std::exchange(highest_, std::max(highest_, record.step));
  const bool replays = record.step < before || (record.step == before && told >= phase_began_);
  enter(now, replays ? Part::replay : Part::training, replays ? State::recovering : State::training);
  if (view_.generations.empty()) return;
  auto& generation = view_.generations.back();
  generation.from_step = replays ? before : record.step - record.steps;
  if (generation.recovers) count_repeated_steps(generation, before, record);
  generations_changed_ = view_.version;
  if (generation.recovers && generation.replacement > 0)
    recovered(generation.heal, "heal", now - phase_began_);
  else if (generation.recovers)
    recovered(generation.restart, "restart", now - phase_began_);
  phase_began_ = now;
  if (!replays && generation.recovers) regained(now);
}

// A process that starts again counts its steps from the one that it resumed at; one that is kept, from its own start.
void JobModel::count_repeated_steps(const GenerationView& generation, std::int64_t before,
                                    const TrainingRecord& record) {
  const auto resumed = generation.replacement > 0 ? std::min(before, record.step - 1) : record.step - record.steps;
  constexpr std::int64_t interrupted = 1;
  view_.totals.repeated_steps += std::max<std::int64_t>(0, before - resumed) + interrupted;
}

void JobModel::regained(Milliseconds now) {
  enter(now, Part::training, State::training);
  auto& generation = view_.generations.back();
  recovered(generation.replay, "replay", now - phase_began_);
  generations_changed_ = view_.version;
  const auto spent = [](Milliseconds part) { return std::max(Milliseconds(0), part); };
  const auto all = spent(generation.detect) + spent(generation.agree) + spent(generation.restart) +
                   spent(generation.heal) + spent(generation.replay);
  if (generation.recovers) view_.totals.complete_recoveries.push_back(all);
  add_event(
      now, "recovered",
      fmt::format("generation {} trains again after {}", generation.generation,
                  all < Milliseconds(1'000) ? fmt::format("{} ms", all.count()) : duration_text(seconds_of(all))));
}

void JobModel::record_checkpoint(const TrainingRecord& record) {
  const Milliseconds time(record.checkpoint_ms);
  if (time <= view_.checkpoint) return;
  view_.checkpoint = time;
  const auto is_checkpoint = [](const EventView& event) { return event.kind == "checkpoint"; };
  auto& events = view_.events;
  // Checkpoints are many, and would displace events that are rare.
  if (static_cast<std::size_t>(std::count_if(events.begin(), events.end(), is_checkpoint)) >= limits_.checkpoints)
    events.erase(std::find_if(events.begin(), events.end(), is_checkpoint));
  add_event(time, "checkpoint", "a checkpoint is complete");
  events.back().step = record.checkpoint_step;
}

void JobModel::add_point(Milliseconds now, const TrainingRecord& record) {
  view_.points.push_back({.version = view_.version,
                          .time = now,
                          .step = record.step,
                          .loss = record.loss,
                          .samples_per_s = record.samples_per_s});
  if (view_.points.size() <= limits_.points) return;
  std::vector<Point> rest;
  for (std::size_t i = 0; i < view_.points.size(); i += 2) rest.push_back(view_.points[i]);
  view_.points = std::move(rest);
}

// An evaluation that a replaced process repeats replaces the first one.
void JobModel::add_evaluation(const TrainingRecord& record) {
  auto& all = view_.evaluations;
  if (!all.empty() && all.back().step == record.evaluation_step) all.pop_back();
  view_.evaluations.push_back({.version = view_.version,
                               .step = record.evaluation_step,
                               .loss = record.evaluation_loss,
                               .accuracy = record.accuracy});
  keep_newest(view_.evaluations, limits_.evaluations, oldest_);
}

// The record's sums are of one process, which counts from its start; those of the view are of the job.
void JobModel::take_totals(const TrainingRecord& record) {
  auto& totals = view_.totals;
  if (taken_.pid != record.pid || record.steps < taken_.steps) taken_ = {.pid = record.pid};
  totals.steps += record.steps - taken_.steps;
  totals.samples += record.samples - taken_.samples;
  totals.tokens += record.tokens - taken_.tokens;
  totals.step_seconds += record.step_seconds() - taken_.step_seconds();
  for (std::size_t i = 0; i < totals.step_counts.size(); ++i)
    totals.step_counts[i] += record.step_counts[i] - taken_.step_counts[i];
  if (part_ == Part::training) {
    account(view_.now);
    move(record.data - taken_.data, Part::training, Part::data);
    move(record.checkpoint - taken_.checkpoint, Part::training, Part::checkpoint);
  }
  taken_ = record;
}

void JobModel::others(Milliseconds now, const JobStatus& job) {
  if (!round_ || job.generation != round_->generation || job.phase != "running") return;
  changed(now);
  for (const auto& node : job.nodes) {
    const auto known = std::find_if(view_.nodes.begin(), view_.nodes.end(),
                                    [&](const auto& n) { return n.group_rank == node.group_rank; });
    if (node.group_rank < 0 || known == view_.nodes.end() || node.group_rank == round_->self) continue;
    // A difference of a second is not a change.
    const auto heard = now - node.heard;
    if (heard - known->heard > Milliseconds(2'000)) {
      known->heard = heard;
      nodes_changed_ = view_.version;
    }
    for (const auto& worker : node.workers) {
      const auto index = static_cast<std::size_t>(node.first_rank + worker.now.local_rank);
      if (node.first_rank < 0 || index >= view_.ranks.size()) continue;
      auto next = view_.ranks[index];
      next.pid = worker.now.pid;
      next.state = state_of(worker.now);
      next.started = next.pid != view_.ranks[index].pid ? now - worker.since : next.started;
      if (worker.now.training) next.lateness = to_two_digits(worker.now.training->lateness);
      if (worker.now.training) next.shares = shares_of(*worker.now.training);
      update(view_.ranks[index], next);
    }
    if (node.usage) take_usage(now, *known, *node.usage);
  }
}

void JobModel::job_training(Milliseconds now, const TrainingRecord& record) {
  changed(now);
  lead(now, record);
}

void JobModel::heard(Milliseconds now) {
  view_.heard = now;
  view_.silence.clear();
}

void JobModel::silent(Milliseconds now, const std::string& why) {
  if (std::exchange(view_.silence, printable(why, 400)) != view_.silence) changed(now);
}

void JobModel::groups(Milliseconds now, const std::vector<GroupProgress>& groups) {
  std::map<std::pair<std::string, std::int64_t>, int> ranks;  // key: host and process
  for (std::size_t rank = 0; rank < view_.ranks.size(); ++rank)
    for (const auto& node : view_.nodes)
      if (node.group_rank == view_.ranks[rank].node) ranks[{node.host, view_.ranks[rank].pid}] = static_cast<int>(rank);
  const auto rank_of = [&](const RankRecord& record) {
    const auto found = ranks.find({record.host, record.pid});
    return found == ranks.end() ? -1 : found->second;
  };
  auto collectives = collectives_of(groups, rank_of);
  auto waits = waits_of(groups);
  const bool equal = std::equal(collectives.begin(), collectives.end(), view_.collectives.begin(),
                                view_.collectives.end(), [](const auto& a, const auto& b) { return same(a, b); });
  if (equal && waits == view_.waits) return;
  changed(now);
  view_.collectives = std::move(collectives);
  view_.waits = std::move(waits);
  collectives_changed_ = view_.version;
}

// A change of less than a percent of the machine is not reported, since with many nodes some change at any time.
void JobModel::take_usage(Milliseconds now, NodeView& node, const NodeUsage& usage) {
  const auto near = [](double one, double other, double all) { return std::abs(one - other) <= all / 100; };
  const auto bytes = [](std::int64_t size) { return static_cast<double>(size); };
  const auto& former = node.usage;
  const double network = former ? std::max({former->received, former->sent, usage.received, usage.sent, 1e5}) : 0;
  const bool known =
      former && near(former->busy, usage.busy, usage.processors) &&
      near(bytes(former->memory_used), bytes(usage.memory_used), bytes(usage.memory)) &&
      near(bytes(former->shared_memory_used), bytes(usage.shared_memory_used), bytes(usage.shared_memory)) &&
      near(former->received, usage.received, network) && near(former->sent, usage.sent, network);
  if (!known) node.usage = usage;
  usage_is_news_ |= !known;
  if (!usage_is_news_ || now - usage_told_ < usage_interval) return;
  usage_is_news_ = false;
  usage_told_ = now;
  changed(now);
  nodes_changed_ = view_.version;
}

void JobModel::usage(Milliseconds now, const NodeUsage& usage) {
  if (!round_ || round_->self < 0) return;
  for (auto& node : view_.nodes) {
    if (node.group_rank != round_->members.at(static_cast<std::size_t>(round_->self)).group_rank) continue;
    take_usage(now, node, usage);
  }
}

void JobModel::store_operations(const std::map<std::string, std::uint64_t>& counted) {
  view_.store_operations = counted;
}

void JobModel::tick(Milliseconds now) {
  if (now - changed_at_ >= beat) changed(now);
  view_.now = std::max(view_.now, now);
  account(now);
}

}  // namespace ddprun::dashboard
