#include "ddprun/launcher/dashboard/job_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "ddprun/common/printable.h"
#include "ddprun/common/signal_name.h"

namespace ddprun::dashboard {
namespace {

double seconds_of(Milliseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

// A view in which nothing happens changes this often, so that clients know that the agent is there.
constexpr Milliseconds beat{5'000};
constexpr Milliseconds point_interval{200};  // at least so long between two points of the curves

// Two digits, so that a rank does not change with every step; and nothing below 10 us.
double rounded(double lateness) {
  if (!std::isfinite(lateness) || lateness < 1e-5) return std::isfinite(lateness) ? 0 : lateness;
  const double unit = std::pow(10, std::floor(std::log10(lateness)) - 1);
  return std::round(lateness / unit) * unit;
}

// Returns whether the numbers are equal, or both unknown.
bool same(double one, double other) {
  return one == other || (std::isnan(one) && std::isnan(other));
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

std::string fault_of(const WorkerFailure& failure) {
  if (failure.cause.starts_with("out of memory")) return "oom";
  return failure.signal_number != 0 ? "signal" : "exit";
}

std::string failure_text(const WorkerFailure& failure) {
  const auto end = failure.signal_number != 0 ? "was ended by " + signal_name(failure.signal_number)
                                              : fmt::format("exited with {}", failure.exit_code);
  auto text = fmt::format("rank {} on host {} ", failure.rank, failure.host);
  const auto& why = failure.cause.empty() ? failure.message : failure.cause;
  // A cause may begin with how the process ended.
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

void JobModel::round_proposed(Milliseconds now, const RoundProposed& proposed) {
  changed(now);
  view_.waiting_for.clear();
  GenerationView generation{.generation = proposed.round.generation, .reason = proposed.reason, .proposed = now};
  generation.recovers = round_ || proposed.round.generation > 0;
  if (round_) {
    enter(now, Part::agree, State::recovering);
    recovered(generation.detect, "detect", detect_);
    phase_began_ = noticed_.value_or(now);
    ++view_.totals.recoveries[std::exchange(fault_, "membership")];
  } else {
    enter(now, Part::startup, State::starting);
  }
  detect_ = Milliseconds(-1);
  view_.generations.push_back(std::move(generation));
  if (view_.generations.size() > limits_.generations) view_.generations.erase(view_.generations.begin());
  generations_changed_ = view_.version;
  add_event(now, "round", fmt::format("generation {}: {}", proposed.round.generation, proposed.reason));
}

void JobModel::round_started(Milliseconds now, const Round& round) {
  changed(now);
  const bool first = !round_;
  round_ = round;
  stepped_ = false;
  taken_ = {};
  told_ms_.clear();
  enter(now, first ? Part::startup : Part::restart, first ? State::running : State::recovering);
  view_.generation = round.generation;
  view_.world_size = round.world_size;
  view_.restarts_used = round.restarts_used;
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
  // The ranks of another size of the world cannot be told as changes.
  oldest_ = view_.version;
  nodes_changed_ = view_.version;
  generation_started(now, round);
}

void JobModel::workers_replaced(Milliseconds now, int restarts_used) {
  if (!round_) return;
  round_->restarts_used = restarts_used;
  round_proposed(now, {.round = *round_, .reason = "replacements for the failed workers; the others go on"});
  enter(now, Part::restart, State::recovering);
  stepped_ = false;
  view_.restarts_used = restarts_used;
  ++view_.replacements;
  generation_started(now, *round_);
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
  view_.totals.recovery_seconds[phase] += seconds_of(value);
  ++view_.totals.recovery_counts[phase];
}

RankView* JobModel::own_rank(int local_rank) {
  if (!round_) return nullptr;
  const auto& self = round_->members.at(static_cast<std::size_t>(round_->self));
  const auto rank = static_cast<std::size_t>(self.first_rank + local_rank);
  return local_rank < self.nproc && rank < view_.ranks.size() ? &view_.ranks[rank] : nullptr;
}

void JobModel::update(RankView& rank, const RankView& next) {
  const bool equal = rank.pid == next.pid && rank.state == next.state && same(rank.lateness, next.lateness) &&
                     same(rank.shares[0], next.shares[0]) && rank.shares[1] == next.shares[1] &&
                     rank.shares[2] == next.shares[2];
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
  // The workers' clock is this host's; without a time of its own a failure was observed at once.
  if (cause.time_us > 0) detect_ = now - happened;
  enter(happened, Part::detect, State::recovering);
  enter(now, Part::agree, State::recovering);
  noticed_ = now;
  fault_ = fault_of(cause);
  for (const auto& failure : failures)
    if (!failure.consequence || &failure == &cause) add_event(now, "fault", failure_text(failure));
}

void JobModel::contact_broken(Milliseconds now, const std::string& text) {
  changed(now);
  enter(now, Part::agree, State::recovering);
  noticed_ = now;
  add_event(now, "fault", text);
}

void JobModel::ended(Milliseconds now, const JobResult& result) {
  changed(now);
  enter(now, Part::idle, result.success ? State::succeeded : State::failed);
  view_.result = printable(result.reason, 400);
  add_event(now, "end", view_.result);
}

void JobModel::training(Milliseconds now, int local_rank, const TrainingRecord& record) {
  auto* rank = own_rank(local_rank);
  if (!rank || std::exchange(told_ms_[local_rank], record.time_ms) == record.time_ms) return;
  changed(now);
  auto next = *rank;
  next.lateness = rounded(record.lateness);
  next.shares = shares_of(record);
  update(*rank, next);
  if (local_rank == 0) lead(now, record);
}

// The node's first rank tells of the whole job.
void JobModel::lead(Milliseconds now, const TrainingRecord& record) {
  const bool new_step = !view_.training || view_.training->step != record.step || view_.training->pid != record.pid;
  const bool evaluated = record.evaluation_step > 0 && taken_.evaluation_step != record.evaluation_step;
  // A process counts from its own start.
  if (view_.training && view_.training->pid != record.pid) taken_ = {};
  view_.training = record;
  note_checkpoint(record);
  if (record.steps > 0 && !std::exchange(stepped_, true)) first_step(now, record);
  highest_ = std::max(highest_, record.step);
  const bool apart = view_.points.empty() || now - view_.points.back().time >= point_interval;
  if (new_step && record.steps > 0 && apart) add_point(now, record);
  if (evaluated) add_evaluation(record);
  take_totals(record);
  if (part_ == Part::replay && record.step >= view_.generations.back().from_step) regained(now);
}

void JobModel::first_step(Milliseconds noticed, const TrainingRecord& record) {
  // A process that was kept tells of the first step of its own.
  const Milliseconds told(record.first_step_ms);
  const auto now = told < phase_began_ ? noticed : std::clamp(told, std::min(accounted_, noticed), noticed);
  const auto before = std::exchange(highest_, std::max(highest_, record.step));
  const bool replays = record.step < before;
  enter(now, replays ? Part::replay : Part::training, replays ? State::recovering : State::training);
  if (view_.generations.empty()) return;
  auto& generation = view_.generations.back();
  generation.from_step = replays ? before : record.step - record.steps;
  generations_changed_ = view_.version;
  if (generation.recovers) recovered(generation.restart, "restart", now - phase_began_);
  phase_began_ = now;
  if (!replays && generation.recovers) regained(now);
}

void JobModel::regained(Milliseconds now) {
  enter(now, Part::training, State::training);
  auto& generation = view_.generations.back();
  recovered(generation.replay, "replay", now - phase_began_);
  generations_changed_ = view_.version;
  const auto spent = [](Milliseconds part) { return std::max(Milliseconds(0), part); };
  const auto all =
      spent(generation.detect) + spent(generation.agree) + spent(generation.restart) + spent(generation.replay);
  add_event(now, "recovered",
            fmt::format("generation {} trains again after {}", generation.generation, duration_text(seconds_of(all))));
}

void JobModel::note_checkpoint(const TrainingRecord& record) {
  const Milliseconds time(record.checkpoint_ms);
  if (time <= view_.checkpoint) return;
  view_.checkpoint = time;
  const auto is_checkpoint = [](const EventView& event) { return event.kind == "checkpoint"; };
  auto& events = view_.events;
  // They are many, and would leave no room for what is rare.
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

// An evaluation that a replaced process repeats takes the place of the first one.
void JobModel::add_evaluation(const TrainingRecord& record) {
  auto& all = view_.evaluations;
  if (!all.empty() && all.back().step == record.evaluation_step) all.pop_back();
  view_.evaluations.push_back({.version = view_.version,
                               .step = record.evaluation_step,
                               .loss = record.evaluation_loss,
                               .accuracy = record.accuracy});
  keep_newest(view_.evaluations, limits_.evaluations, oldest_);
}

// The record's sums are of one process; those of the view are of the job.
void JobModel::take_totals(const TrainingRecord& record) {
  auto& totals = view_.totals;
  if (taken_.pid != record.pid) taken_ = {.pid = record.pid};
  totals.steps += record.steps - taken_.steps;
  totals.samples += record.samples - taken_.samples;
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
    // A second more or less is no news.
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
      if (worker.now.training) next.lateness = rounded(worker.now.training->lateness);
      update(view_.ranks[index], next);
    }
  }
}

void JobModel::tick(Milliseconds now) {
  if (now - changed_at_ >= beat) changed(now);
  view_.now = std::max(view_.now, now);
  account(now);
}

}  // namespace ddprun::dashboard
