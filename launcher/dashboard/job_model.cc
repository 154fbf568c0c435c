#include "launcher/dashboard/job_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/printable.h"
#include "launcher/dashboard/collectives.h"
#include "launcher/dashboard/faults.h"
#include "launcher/dashboard/rank_reports.h"

namespace ddprun::dashboard {
namespace {

// A view without other changes changes at this interval, so that clients know that the agent is alive.
constexpr Milliseconds beat{5'000};
constexpr Milliseconds usage_interval{4'000};  // between two messages about the use of nodes
constexpr Milliseconds point_interval{200};    // the least time between two points of the curves

template <class T>
void keep_newest(std::vector<T>& items, std::size_t limit, Version& oldest) {
  if (items.size() <= limit) return;
  const auto surplus = items.begin() + static_cast<std::ptrdiff_t>(items.size() - limit);
  oldest = std::max(oldest, (surplus - 1)->version);
  items.erase(items.begin(), surplus);
}

}  // namespace

JobModel::JobModel(JobFacts facts, Milliseconds now, HistoryLimits limits)
    : limits_(limits), account_(now), recoveries_(limits.generations) {
  view_.facts = std::move(facts);
  view_.began = now;
  changed(now);
}

void JobModel::changed(Milliseconds now) {
  view_.now = changed_at_ = std::max(view_.now, now);
  ++view_.version;
}

void JobModel::enter(Milliseconds now, Part part, State state) {
  account_.enter(now, part);
  view_.seconds = account_.seconds();
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
  recoveries_.begin(view_, now, std::move(generation));
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
  recoveries_.suspect(proposed.reason);
  append_generation(
      now, {.generation = proposed.round.generation, .reason = proposed.reason, .proposed = now, .recovers = recovers});
  add_event(now, "round", fmt::format("generation {}: {}", proposed.round.generation, proposed.reason));
}

void JobModel::round_started(Milliseconds now, const Round& round) {
  changed(now);
  const bool first = !round_;
  round_ = round;
  recoveries_.await_step();
  counted_.reset();
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
    recoveries_.suspect(change.reason);
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
  recoveries_.await_step();
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

void JobModel::change_leader() {
  if (told_.empty()) return;
  const auto& [local_rank, record] = *told_.begin();
  leader_ = local_rank;
  counted_.change_to(record);
}

void JobModel::generation_started(Milliseconds now, const Round& round) {
  recoveries_.started(view_, now, round);
  generations_changed_ = view_.version;
}

RankView* JobModel::own_rank(int local_rank) {
  if (!round_ || round_->self < 0) return nullptr;
  const auto& self = round_->members.at(static_cast<std::size_t>(round_->self));
  const auto rank = static_cast<std::size_t>(self.first_rank + local_rank);
  return local_rank < self.nproc && rank < view_.ranks.size() ? &view_.ranks[rank] : nullptr;
}

void JobModel::update(RankView& rank, const RankView& next) {
  if (same(rank, next)) return;
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
  const auto known = account_.until();
  const auto happened = std::clamp(Milliseconds(cause.time_us / 1000), known, std::max(known, now));
  enter(happened, Part::detect, State::recovering);
  enter(now, Part::agree, State::recovering);
  // The workers' clock is this host's; a failure without a time of its own was observed at once.
  recoveries_.noticed(now, fault_of(cause), cause.time_us > 0 ? std::optional(now - happened) : std::nullopt);
  for (const auto& failure : failures)
    if (!failure.consequence || &failure == &cause) add_event(now, "fault", fault_text(failure));
}

void JobModel::contact_broken(Milliseconds now, const std::string& text) {
  changed(now);
  enter(now, Part::agree, State::recovering);
  recoveries_.noticed(now, "cut", std::nullopt);
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
  const bool new_step = !view_.training || view_.training->step != record.step || !counted_.is_of(record);
  const bool evaluated = record.evaluation_step > 0 && !counted_.has_evaluation(record);
  view_.training = record;
  record_checkpoint(record);
  if (const auto step = recoveries_.take(now, account_.until(), record, counted_.steps_of(record)))
    first_step(*step, record);
  const bool apart = view_.points.empty() || now - view_.points.back().time >= point_interval;
  if (new_step && record.steps > 0 && apart) add_point(now, record);
  if (evaluated) add_evaluation(record);
  count(record);
  if (account_.part() == Part::replay && record.step >= view_.generations.back().from_step) regained(now);
}

void JobModel::first_step(const Recoveries::FirstStep& step, const TrainingRecord& record) {
  enter(step.time, step.replays ? Part::replay : Part::training, step.replays ? State::recovering : State::training);
  if (view_.generations.empty()) return;
  recoveries_.record_first_step(view_, step, record);
  generations_changed_ = view_.version;
  if (!step.replays && view_.generations.back().recovers) regained(step.time);
}

void JobModel::regained(Milliseconds now) {
  enter(now, Part::training, State::training);
  const auto all = recoveries_.regained(view_, now);
  generations_changed_ = view_.version;
  const auto text = all < Milliseconds(1'000) ? fmt::format("{} ms", all.count())
                                              : duration_text(std::chrono::duration<double>(all).count());
  add_event(now, "recovered",
            fmt::format("generation {} trains again after {}", view_.generations.back().generation, text));
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

void JobModel::count(const TrainingRecord& record) {
  const auto news = counted_.count(record, view_.totals);
  if (account_.part() != Part::training) return;
  account_.pass(view_.now);
  account_.move(news.data, Part::training, Part::data);
  account_.move(news.checkpoint, Part::training, Part::checkpoint);
  view_.seconds = account_.seconds();
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

void JobModel::take_usage(Milliseconds now, NodeView& node, const NodeUsage& usage) {
  const bool known = node.usage && same(*node.usage, usage);
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
  account_.pass(now);
  view_.seconds = account_.seconds();
}

}  // namespace ddprun::dashboard
