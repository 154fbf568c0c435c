// Failures of workers: whether they are replaced while the others run, lead to a new round, or end the job.
#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "common/exit_code.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/worker_failure.h"
#include "rendezvous/membership/worker_names.h"

namespace ddprun {
namespace {

// A message to all nodes carries the failures.
constexpr std::size_t max_replaced_at_once = 128;

}  // namespace

MembershipMessages Membership::failure(Time now, const std::string& id, std::int64_t generation,
                                       const std::vector<WorkerFailure>& failures, Survivors survivors) {
  record_activity(now, id);
  Node* node = current_member(id, generation, Phase::running);
  if (!node || node->failed) return take_messages();
  const bool survivors_run = survivors != Survivors::stopped;
  const auto& member = round_.members.at(static_cast<std::size_t>(*node->rank));
  const auto refusal = survivors_run ? replacement_refusal(member, failures) : "";
  for (auto failure : failures) {
    if (round_.group_generation > 0) {  // the node may not have learnt yet of its new ranks
      failure.group_rank = member.group_rank;
      failure.rank = member.first_rank + failure.local_rank;
    }
    failures_.push_back(std::move(failure));
  }
  if (failures.empty())
    failures_.push_back({.host = node->info.host, .message = "its agent could not run the workers and gave no reason"});
  ends_unless_replaced_ |= survivors == Survivors::run_or_end;
  if (survivors_run && refusal.empty()) {
    ask_whether_all_recover(id);
  } else if (survivors_run) {
    refuse_replacement(now, {id}, refusal);
  } else {
    await_judgement(now, *node);
  }
  check_failures(now);
  return take_messages();
}

// Returns why these failures are judged as those of a node that stopped its workers; empty if they need not be.
std::string MembershipState::replacement_refusal(const RoundMember& member,
                                                 const std::vector<WorkerFailure>& failures) const {
  const auto is_own = [&](const WorkerFailure& failure) {
    return failure.local_rank >= 0 && failure.local_rank < member.nproc;
  };
  const auto count = failures_.size() + failures.size();
  if (failures.empty() || !std::all_of(failures.begin(), failures.end(), is_own))
    return "the report names no rank of its node";
  if (std::any_of(failures.begin(), failures.end(), [](const auto& each) { return each.usage_error; }))
    return "its settings are refused";
  if (judgement_due_) return "another node has stopped its workers";
  if (any_member_done()) return "the workers of another node are done";
  if (static_cast<int>(count) >= round_.world_size) return "no rank is left";
  if (count > max_replaced_at_once) return "too many ranks have failed at once";
  if (restarts_used_ + static_cast<int>(count) > policy_.max_restarts) return "no restart is left";
  return "";
}

// One question is open at a time; its answer is about all ranks, and so about failures that are reported meanwhile.
void MembershipState::ask_whether_all_recover(const std::string& node) {
  if (asking_.empty()) post({round_.members.front().node_id}, RecoveryAsked{round_.generation});
  asking_.push_back(node);
}

MembershipMessages Membership::recovery_answered(Time now, const std::string& id, std::int64_t generation,
                                                 const std::string& refusal) {
  record_activity(now, id);
  const Node* node = current_member(id, generation, Phase::running);
  if (!node || node->rank != 0) return take_messages();
  if (asking_.empty()) {
    if (!refusal.empty() && round_.group_generation > 0 && !judgement_due_)
      change_round(now, fmt::format("the workers of generation {} cannot go on: {}", generation, refusal));
    return take_messages();
  }
  if (judgement_due_) {
    refuse_replacement(now, std::exchange(asking_, {}), "another node has stopped its workers");
  } else if (!refusal.empty()) {
    refuse_replacement(now, std::exchange(asking_, {}), refusal, exit_usage);
  } else {
    replace_failed();
  }
  check_failures(now);
  return take_messages();
}

MembershipMessages Membership::recoverable(Time now, const std::string& id, std::int64_t generation, bool able) {
  record_activity(now, id);
  const Node* node = current_member(id, generation, Phase::running);
  if (!node || node->rank != 0) return take_messages();
  recoverable_ = able;
  std::vector<std::string> to;
  for (const auto& member : round_.members) to.push_back(member.node_id);
  post(std::move(to), WorkersRecoverable{generation, able});
  return take_messages();
}

void MembershipState::replace_failed() {
  std::stable_sort(failures_.begin(), failures_.end(), is_likelier_cause);
  restarts_used_ += static_cast<int>(failures_.size());
  round_.restarts_used = restarts_used_;
  for (auto& failure : failures_) failure.last_lines.clear();  // they are on its node
  for (const auto& failure : failures_) forget_training(failure);
  std::vector<std::string> to;
  for (const auto& member : round_.members) to.push_back(member.node_id);
  WorkersReplaced replaced{.generation = round_.generation,
                           .restarts_used = restarts_used_,
                           .failures = std::exchange(failures_, {}),
                           .group_generation = ++round_.group_generation};
  rename_replaced(round_, replaced);
  post(std::move(to), std::move(replaced));
  forget_failures();
}

// A replacement has made no step.
void MembershipState::forget_training(const WorkerFailure& failure) {
  const auto node = nodes_.find(round_.members.at(static_cast<std::size_t>(failure.group_rank)).node_id);
  const auto index = static_cast<std::size_t>(failure.local_rank);
  if (node == nodes_.end() || index >= node->second.workers.size()) return;
  auto& worker = node->second.workers[index];
  worker.now.training.reset();
  worker.replaced = worker.now.pid;
}

// exit_code is that of a job that ends because of the refusal; none: the failure's.
void MembershipState::refuse_replacement(Time now, const std::vector<std::string>& nodes, const std::string& refusal,
                                         std::optional<int> exit_code) {
  if (nodes.empty()) return;
  std::vector<std::string> to;
  for (const auto& id : nodes) {
    const auto node = nodes_.find(id);
    if (node == nodes_.end() || node->second.failed) continue;
    to.push_back(id);
    await_judgement(now, node->second);
  }
  post(std::move(to), ReplacementRefused{round_.generation});
  if (!ends_unless_replaced_ || restarts_used_ >= policy_.max_restarts) return;
  std::stable_sort(failures_.begin(), failures_.end(), is_likelier_cause);
  const auto& cause = failures_.front();
  if (!cause.usage_error)
    end({.exit_code = exit_code.value_or(exit_code_of(cause)),
         .reason = fmt::format("{}; {} (--restart=failed)", failure_text(cause), refusal),
         .failures = std::move(failures_)});
}

// The root cause may be a failure that another node reports later.
void MembershipState::await_judgement(Time now, Node& node) {
  node.failed = true;
  if (judgement_due_) return;
  judgement_due_ = now + (member_count() > 1 ? options_.settle : std::chrono::milliseconds(0));
  ++liveness_event_;
  for (auto& entry : nodes_) entry.second.heard_since_failure = false;
}

void MembershipState::forget_failures() {
  judgement_due_.reset();
  failures_.clear();
  asking_.clear();
  ends_unless_replaced_ = false;
}

void MembershipState::check_failures(Time now) {
  if (phase_ != Phase::running || !judgement_due_) return;
  const bool all_reported = std::all_of(nodes_.begin(), nodes_.end(), [](const auto& entry) {
    const Node& node = entry.second;
    return !node.member || node.failed || node.succeeded;
  });
  // In a job that ends in any case, workers that name the peer which they have lost say more than its node's silence.
  const bool name_lost_peers =
      !policy_.may_be_replaced() && std::ranges::all_of(failures_, &WorkerFailure::consequence);
  if (all_reported || (now >= *judgement_due_ && (name_lost_peers || !any_member_suspect()))) judge_failures(now);
}

// Those that nodes have used by themselves are counted apart.
int MembershipState::all_restarts() const {
  int count = restarts_used_;
  for (const auto& [id, node] : nodes_) count += node.replaced;
  return count;
}

void MembershipState::judge_failures(Time now) {
  std::stable_sort(failures_.begin(), failures_.end(), is_likelier_cause);
  const WorkerFailure& cause = failures_.front();
  if (cause.usage_error) {  // a restart would end the same way
    auto reason = job_result_text(cause, static_cast<int>(round_.members.size()));
    return end({.exit_code = exit_code_of(cause), .reason = std::move(reason), .failures = std::move(failures_)});
  }
  if (restarts_used_ < policy_.max_restarts) {
    ++restarts_used_;
    const std::string why =
        fmt::format("{}; restart {} of {}", failure_text(cause), all_restarts(), policy_.max_restarts);
    return change_round(now, why);
  }
  const std::string budget = policy_.max_restarts == 0   ? ""
                             : policy_.max_restarts == 1 ? "; the one restart is used"
                                                         : fmt::format("; all {} restarts used", policy_.max_restarts);
  end({.exit_code = exit_code_of(cause), .reason = failure_text(cause) + budget, .failures = std::move(failures_)});
}

// The job cannot continue after a loss. If failures were observed before the loss, the first of them is the cause.
void MembershipState::end_by_loss(const std::string& why, Pending failures) {
  std::stable_sort(failures_.begin(), failures_.end(), is_likelier_cause);
  JobResult result{.exit_code = exit_fault, .reason = why, .failures = std::move(failures_)};
  if (failures == Pending::cause && !result.failures.empty()) {
    result.exit_code = exit_code_of(result.failures.front());
    result.reason = fmt::format("{}; then {}", failure_text(result.failures.front()), why);
  }
  end(std::move(result));
}

}  // namespace ddprun
