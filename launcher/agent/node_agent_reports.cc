// A node reports to the rendezvous, to ddprun status and the dashboard, and on its terminal.
#include <chrono>

#include "common/version.h"
#include "launcher/agent/job_end.h"
#include "launcher/agent/node_agent.h"
#include "launcher/agent/own_record.h"
#include "launcher/dashboard/screen_text.h"
#include "launcher/workers/process_evidence.h"
#include "rendezvous/backend.h"

namespace ddprun {
namespace {

// The interval at which the rendezvous server gets the progress of the training.
constexpr std::chrono::milliseconds training_interval{2'000};

}  // namespace

dashboard::WatchSpec NodeAgent::watch_spec(const AgentSpec& spec) {
  return {.facts = {.run_id = spec.policy.run_id,
                    .program = spec.policy.program,
                    .host = spec.group.host,
                    .version = std::string(project_version()),
                    .min_nodes = spec.policy.min_nodes,
                    .max_nodes = spec.policy.max_nodes,
                    .max_restarts = spec.policy.max_restarts},
          .journal = keeps_logs(spec, logs_) ? logs_.root() : std::filesystem::path(),
          .dashboard = spec.dashboard,
          .curve = shows_curve(),
          .training = [this] { return training_.records(group_.reports()); },
          .evidence = [this](int local_rank) { return evidence_of(local_rank); },
          .usage = [this] { return usage_.read(std::chrono::steady_clock::now()); },
          .store_operations = [this] { return store_.operations(); },
          .own_status = [this] { return record().own; }};
}

// Prints the curve after the workers' output.
void NodeAgent::show_curve() {
  constexpr int columns_of_file = 100;
  const auto window = console_.window(Console::Stream::err);
  if (shows_curve())
    console_.write(Console::Stream::err,
                   dashboard::loss_text(watch_.view(), window ? window->columns : columns_of_file));
}

dashboard::RankEvidence NodeAgent::evidence_of(int local_rank) const {
  const auto output = group_.recent_output(local_rank);
  dashboard::RankEvidence evidence{.out = output.out, .err = output.err, .process = {}};
  for (const auto& worker : group_.workers())
    if (worker.local_rank == local_rank && !worker.exit)
      for (auto& fact : process_facts(worker.pid)) evidence.process.emplace_back(fact.name, fact.value);
  return evidence;
}

// A server that was started while the workers ran knows nothing of them, and the other nodes what they knew before.
void NodeAgent::report_again() {
  recoverable_reports_.report_again();
  got_state_.clear();
  report_got_state();
  report_workers(training_.with_training(group_.reports()));
}

AgentRecord NodeAgent::record() const {
  auto record =
      own_record(spec_, backend_ ? backend_->endpoint() : "", round_, training_.with_training(group_.reports()));
  record.relays = relays();
  return record;
}

// Reports workers to the rendezvous for ddprun status.
void NodeAgent::report_workers(const std::vector<WorkerReport>& changed) {
  watch_.changed(changed);
  report_node({.workers = changed, .replaced = replaced_});
}

void NodeAgent::report_node(const NodeReport& report) {
  if (backend_ && round_) backend_->rendezvous().report_node(round_->generation, report);
}

// Reports the training for ddprun status on other hosts, and for ddprun dashboard; on this host status asks the
// agent, which then reads what is new.
void NodeAgent::report_training() {
  training_.every(training_interval, [this] {
    if (spare_.kept()) return report_spare();
    keep_standby();
    recoverable_reports_.report();
    report_node({.workers = training_.changed(group_.reports()),
                 .replaced = replaced_,
                 .usage = usage_.read(std::chrono::steady_clock::now()),
                 .wants_standby = wants_standby()});
  });
}

// The server lets a node leave only while another one has the state of the training. Workers that join have it once
// they report their training; one of this node's workers is enough.
void NodeAgent::report_first_step() {
  training_.soon([this] {
    auto changed = training_.changed(group_.reports());
    if (changed.empty()) return false;
    report_node({.workers = std::move(changed), .replaced = replaced_});
    return true;
  });
}

// Those on whose node the agent cannot read records, as in containers, say it in their store alone.
void NodeAgent::report_got_state() {
  if (!round_) return;
  auto now = store_.got_state(*round_, state_.members());
  if (now == std::exchange(got_state_, now)) return;
  report_node({.workers = {}, .replaced = replaced_, .got_state = std::move(now)});
}

// Returns whether the workers want a process to stand by, for the server; none in a job without spares.
std::optional<bool> NodeAgent::wants_standby() const {
  if (spec_.policy.spares == 0) return std::nullopt;
  return training_.want_standby(group_.reports());
}

void NodeAgent::report_spare() {
  if (const auto ready = spare_.look())
    backend_->rendezvous().report_node(round_ ? round_->generation : 0, {.workers = {}, .stands_by = ready});
}

// A program that knows how to stand by says so in its training record. Short jobs end before it is read.
void NodeAgent::keep_standby() {
  if (!round_ || round_->restarts_used >= spec_.restarts.max_restarts) return group_.keep_standby(false);
  if (training_.want_standby(group_.reports())) group_.keep_standby(true);
}

}  // namespace ddprun
