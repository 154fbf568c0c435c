#include "launcher/dashboard/job_watch.h"

#include <variant>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"
#include "common/random.h"
#include "common/wall_clock.h"
#include "launcher/dashboard/collectives.h"
#include "launcher/dashboard/http_rules.h"
#include "launcher/dashboard/metrics.h"
#include "launcher/dashboard/page.h"
#include "launcher/dashboard/view_json.h"

namespace ddprun::dashboard {
namespace {

// The interval at which the workers' records are read: while somebody looks at the page, and otherwise for the curves.
constexpr Milliseconds watched_interval{250};
constexpr Milliseconds interval{1'000};
constexpr Milliseconds recovery_interval{50};  // so that its phases are measured

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
// Clang deduces the arguments of an aggregate from version 17 on.
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

JobWatch::JobWatch(boost::asio::io_context& loop, WatchSpec spec)
    : loop_(loop), spec_(std::move(spec)), model_(spec_.facts, wall_clock()), timer_(loop) {
  try {
    if (!spec_.journal.empty()) journal_ = std::make_unique<Journal>(spec_.journal / journal_name);
  } catch (const Error& e) {
    log::warn("ddprun report will have nothing of this job: {}", e.what());
  }
  if (spec_.dashboard)
    server_ = std::make_unique<ViewServer>(
        loop, *spec_.dashboard, spec_.facts.host,
        ViewServer::Source{
            .model = model_, .refresh = [this] { refresh(); }, .details = [this](int rank) { return details(rank); }});
  wait();
}

JobWatch::~JobWatch() = default;

std::string JobWatch::details(int rank) const {
  const int local_rank = rank - self_.value_or(0);
  const bool own = self_ && local_rank >= 0 && local_rank < workers_;
  return rank_details(model_.view(), rank, groups_, own ? std::optional(spec_.evidence(local_rank)) : std::nullopt);
}

void JobWatch::wait() {
  const bool recovers = model_.view().state == State::recovering;
  const bool watched = spec_.curve || (server_ && server_->watched());
  timer_.run_after(recovers ? recovery_interval : watched ? watched_interval : interval, [this] { tick(); });
}

void JobWatch::tick() {
  refresh();
  publish();
  wait();
}

void JobWatch::refresh() {
  const auto now = wall_clock();
  // A record has the time of the first step: the time up to now is accounted after that is known.
  for (const auto& [local_rank, record] : spec_.training()) model_.training(now, local_rank, record);
  if (server_ && server_->asked()) {
    if (const auto usage = spec_.usage()) model_.usage(now, *usage);
    model_.store_operations(spec_.store_operations());
  }
  model_.tick(now);
}

void JobWatch::publish() {
  if (journal_) journal_->update(model_);
  if (server_) server_->publish();
}

void JobWatch::on(const RendezvousEvent& event) {
  const auto now = wall_clock();
  refresh();
  std::visit(Overloaded{[&](const RendezvousWaiting& e) { model_.waiting(now, e.text); },
                        [&](const RoundProposed& e) { model_.round_proposed(now, e); },
                        [&](const RoundStarted& e) {
                          take_place(e.round);
                          model_.round_started(now, e.round);
                        },
                        [&](const RoundChanged& e) {
                          take_place(e.round);
                          if (!e.joins(e.round.self)) return model_.round_changed(now, e);
                          model_.round_proposed(now, {e.round, e.reason});
                          model_.round_started(now, e.round);
                        },
                        // The agent reports these as they are carried out, by workers_replaced().
                        [&](const WorkersRecoverable&) {}, [&](const StandbyAsked&) {}, [&](const RecoveryAsked&) {},
                        [&](const WorkersReplaced&) {}, [&](const ReplacementRefused&) {},
                        [&](const LeaveAnswered& e) {
                          if (e.refusal.empty()) model_.left(now);
                        },
                        [&](const JobEnded& e) { model_.ended(now, e.result); },
                        [&](const ContactBroken& e) { model_.contact_broken(now, e.text); },
                        [&](const RoundResumed&) { model_.note(now, "node", "the rendezvous server is back"); },
                        [&](const ContactLost& e) { model_.ended(now, {.reason = e.error.what()}); }},
             event);
  watch_recovery();
  if (journal_) journal_->update(model_);
}

void JobWatch::take_place(const Round& round) {
  const auto& self = round.members.at(static_cast<std::size_t>(round.self));
  self_ = self.first_rank;
  workers_ = self.nproc;
  groups_.clear();
}

void JobWatch::note(const std::string& kind, const std::string& text) {
  model_.note(wall_clock(), kind, text);
  if (journal_) journal_->update(model_);
}

void JobWatch::failed(const std::vector<WorkerFailure>& failures) {
  refresh();
  model_.failed(wall_clock(), failures);
  watch_recovery();
  if (journal_) journal_->update(model_);
}

void JobWatch::workers_replaced(const std::vector<int>& local_ranks, int restarts_used) {
  refresh();  // gets the last records of those that have failed
  model_.workers_replaced(wall_clock(), local_ranks, restarts_used);
  if (journal_) journal_->update(model_);
}

void JobWatch::watch_recovery() {
  if (model_.view().state == State::recovering) wait();
}

void JobWatch::changed(const std::vector<WorkerReport>& workers) {
  refresh();  // gets the last record of an ended worker
  model_.workers(wall_clock(), workers);
}

void JobWatch::ask_others_at(const ServerAddress& server) {
  if (!server_) return;
  const auto wanted = [this]() -> std::optional<JobStatus> {
    return server_->asked() ? std::optional(spec_.own_status()) : std::nullopt;
  };
  poller_ = std::make_unique<JobPoller>(
      loop_, JobPoller::Spec{.server = server, .run_id = spec_.facts.run_id, .asks_status = spec_.facts.max_nodes > 1},
      JobPoller::Handlers{.status = [this](const JobStatus& job) { model_.others(wall_clock(), job); },
                          .unheard = [](const std::string&) {},
                          .wanted = wanted,
                          .groups =
                              [this](const std::vector<GroupProgress>& groups) {
                                groups_ = living_groups(groups);
                                model_.groups(wall_clock(), groups_);
                              }});
}

std::string JobWatch::snapshot() {
  refresh();
  return snapshot_json(model_);
}

void JobWatch::finish(int exit_code) {
  timer_.cancel();
  poller_.reset();
  refresh();
  const auto reason = leaving_.empty() ? fmt::format("the agent has ended with exit code {}", exit_code) : leaving_;
  model_.ended(wall_clock(), {.success = exit_code == 0, .exit_code = exit_code, .reason = reason});
  if (journal_) journal_->flush(model_);
  if (server_) server_->publish_last();
}

}  // namespace ddprun::dashboard
