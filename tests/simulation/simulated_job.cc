#include "tests/simulation/simulated_job.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw std::logic_error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

SimulatedJob::SimulatedJob(std::uint64_t seed) : random_(seed), policy_(draw_policy()), membership_(policy_) {
  chaos_end_ = now_ + delay(5'000, 180'000);
  const int count = policy_.fixed_ranks ? policy_.max_nodes : between(policy_.min_nodes, 16);
  for (int i = 0; i < count; ++i) {
    auto agent = std::make_shared<Agent>();
    agent->id = fmt::format("n{}", i);
    agent->info = {.id = agent->id, .host = agent->id, .nproc = between(1, 4)};
    if (policy_.fixed_ranks || chance(0.2)) agent->info.node_rank = i;
    agents_[agent->id] = agent;
    at(now_ + delay(0, 20'000), [this, agent] { start(agent); });
  }
  at(now_ + delay(0, 5'000), [this] { disturb(); });
}

JobPolicy SimulatedJob::draw_policy() {
  JobPolicy policy;
  policy.max_nodes = between(1, 12);
  policy.min_nodes = between(1, policy.max_nodes);
  policy.fixed_ranks = chance(0.25);
  if (policy.fixed_ranks) policy.min_nodes = policy.max_nodes;
  policy.max_restarts = between(0, 4);
  policy.last_call = std::chrono::milliseconds(between(0, 5'000));
  policy.join_timeout = 60s;
  return policy;
}

void SimulatedJob::run() {
  const Time bound = chaos_end_ + 10min;
  at(now_, [this] { tick(); });
  while (!events_.empty()) {
    const auto next = events_.begin();
    now_ = next->first;
    const auto action = std::move(next->second);
    events_.erase(next);
    action();
    const bool all_gone = std::none_of(agents_.begin(), agents_.end(), [](const auto& a) { return a.second->up; });
    if (verdict_ || (!still_chaos() && all_gone)) return;
    require(now_ < bound, "no verdict 10 minutes after the chaos ended");
  }
  throw std::logic_error("nothing more happens, and there is no verdict");
}

// ---- time and network

void SimulatedJob::run_at_server(std::function<void()> action) {
  if (now_ < server_frozen_until_) return at(server_frozen_until_, [this, action] { run_at_server(action); });
  action();
}

void SimulatedJob::tick() {
  run_at_server([this] {
    take(membership_.tick(now_));
    at(std::max(membership_.next_tick(), now_ + 1ms), [this] { tick(); });
  });
}

// From an agent to the server, if it is still the same life there; sometimes twice.
void SimulatedJob::at_server(const std::shared_ptr<Agent>& agent, std::function<MembershipMessages()> event) {
  agent->last_sent = std::max(agent->last_sent, now_ + delay(0, 200));
  const auto arrive = [this, agent, event, life = agent->life] {
    run_at_server([this, agent, event, life] {
      const auto session = sessions_.find(agent->id);
      if (session != sessions_.end() && session->second == life) take(event());
    });
  };
  at(agent->last_sent, arrive);
  if (chance(0.1)) at(agent->last_sent + delay(0, 3'000), arrive);
}

void SimulatedJob::at_agent(const std::shared_ptr<Agent>& agent, std::function<void()> action) {
  agent->last_heard = std::max(agent->last_heard, now_ + delay(0, 200));
  in_life(agent, agent->life, agent->last_heard, std::move(action));
}

// On the agent's side, once it is not frozen; never when that life is over.
void SimulatedJob::in_life(const std::shared_ptr<Agent>& agent, int life, Time when, std::function<void()> action) {
  at(when, [this, agent, life, action] {
    if (!agent->up || agent->life != life) return;
    if (now_ < agent->frozen_until) return in_life(agent, life, agent->frozen_until, action);
    action();
  });
}

// ---- agents

void SimulatedJob::start(const std::shared_ptr<Agent>& agent) {
  if (verdict_ || agent->up) return;
  agent->up = true;
  agent->proposed.reset();
  agent->running.reset();
  const int life = ++agent->life;
  at(now_ + delay(0, 200), [this, agent, life] {
    run_at_server([this, agent, life] {
      if (agent->life != life) return;
      const auto known = sessions_.find(agent->id);
      if (known != sessions_.end() && known->second > life) return;
      sessions_[agent->id] = life;
      take(membership_.join(now_, agent->info, policy_, {"10.0.0.1", "10.0.0.2"}));
    });
  });
  in_life(agent, life, now_, [this, agent] { beat(agent); });
}

void SimulatedJob::beat(const std::shared_ptr<Agent>& agent) {
  at_server(agent, [this, agent] { return membership_.beat(now_, agent->id); });
  in_life(agent, agent->life, now_ + 1s, [this, agent] { beat(agent); });
}

void SimulatedJob::say_ready(const std::shared_ptr<Agent>& agent, std::int64_t generation) {
  if (agent->proposed != generation) return;  // a later proposal is being answered
  agent->running.reset();
  at_server(agent, [this, agent, generation] {
    if (last_round_ && generation == last_round_->generation) said_ready_.insert(agent->id);
    return membership_.ready(now_, agent->id, generation, 4000);
  });
}

void SimulatedJob::finish_running(const std::shared_ptr<Agent>& agent, std::int64_t generation) {
  if (agent->running != generation) return;
  const bool fails = still_chaos() && chance(0.4);
  if (fails) {
    const WorkerFailure failure{.rank = 0, .host = agent->id, .exit_code = between(1, 9)};
    at_server(agent, [this, agent, generation, failure] {
      ++counts_.failures;
      return membership_.failure(now_, agent->id, generation, {failure});
    });
  } else {
    at_server(agent, [this, agent, generation] {
      if (last_round_ && generation == last_round_->generation) said_success_.insert(agent->id);
      return membership_.success(now_, agent->id, generation);
    });
  }
}

// With a word, by a closed connection, or in silence.
void SimulatedJob::die(const std::shared_ptr<Agent>& agent) {
  const int life = agent->life;
  const int way = between(0, 2);
  if (way == 0) {
    at_server(agent, [this, agent] {
      sessions_.erase(agent->id);
      stayed_.erase(agent->id);
      return membership_.leave(now_, agent->id, "SIGTERM");
    });
  }
  if (way == 1) {
    at(now_ + delay(0, 500), [this, agent, life] {
      run_at_server([this, agent, life] {
        const auto session = sessions_.find(agent->id);
        if (session == sessions_.end() || session->second != life) return;
        sessions_.erase(session);
        stayed_.erase(agent->id);
        take(membership_.session_closed(now_, agent->id, "its connection closed"));
      });
    });
  }
  agent->up = false;
  agent->running.reset();
  if (chance(0.8)) at(now_ + delay(0, 20'000), [this, agent] { start(agent); });
}

void SimulatedJob::disturb() {
  if (!still_chaos()) return;
  auto victim = std::next(agents_.begin(), between(0, static_cast<int>(agents_.size()) - 1))->second;
  const int what = between(0, 9);
  if (what < 4 && victim->up) die(victim);
  if (what >= 4 && what < 8) victim->frozen_until = now_ + delay(100, 15'000);
  if (what == 8) server_frozen_until_ = now_ + delay(100, 60'000);
  at(now_ + delay(200, 15'000), [this] { disturb(); });
}

// ---- what the server says

void SimulatedJob::take(const MembershipMessages& messages) {
  for (const auto& message : messages) {
    require(!verdict_, "a message follows the verdict");
    if (const auto* proposed = std::get_if<RoundProposed>(&message.what)) check_proposed(message.to, proposed->round);
    if (const auto* started = std::get_if<RoundStarted>(&message.what)) check_started(started->round);
    for (const auto& id : message.to) {
      const auto& agent = agents_.at(id);
      const auto session = sessions_.find(id);
      if (agent->up && session != sessions_.end() && session->second == agent->life)
        at_agent(agent, [this, agent, what = message.what] { hear(agent, what); });
      const bool dropped = std::holds_alternative<NodeDropped>(message.what);
      counts_.drops += dropped;
      if (!dropped && !std::holds_alternative<JoinRefused>(message.what)) continue;
      sessions_.erase(id);
      stayed_.erase(id);
    }
    if (const auto* ended = std::get_if<JobEnded>(&message.what)) check_ended(ended->verdict);
  }
}

void SimulatedJob::check_proposed(const std::vector<std::string>& to, const Round& round) {
  ++counts_.proposals;
  const auto size = static_cast<int>(round.members.size());
  require(size >= policy_.min_nodes && size <= policy_.max_nodes, "a round of {} nodes", size);
  require(to.size() == round.members.size(), "a round is told to others than its members");
  std::set<std::string> ids;
  int first_rank = 0;
  for (int i = 0; i < size; ++i) {
    const RoundMember& member = round.members[static_cast<std::size_t>(i)];
    const NodeInfo& info = agents_.at(member.node_id)->info;
    require(member.group_rank == i && to[static_cast<std::size_t>(i)] == member.node_id, "group ranks are not dense");
    require(member.first_rank == first_rank && member.nproc == info.nproc, "ranks are not contiguous");
    require(!policy_.fixed_ranks || info.node_rank == i, "node {} did not get its fixed rank", member.node_id);
    first_rank += member.nproc;
    ids.insert(member.node_id);
  }
  require(static_cast<int>(ids.size()) == size && round.world_size == first_rank, "a node is in a round twice");
  if (last_round_) {
    require(round.generation > last_round_->generation, "generation {} after {}", round.generation,
            last_round_->generation);
    require(round.restarts_used <= last_round_->restarts_used + 1 && round.restarts_used >= last_round_->restarts_used,
            "{} restarts after {}", round.restarts_used, last_round_->restarts_used);
    for (const auto& old : last_round_->members)
      if (stayed_.contains(old.node_id) && old.group_rank < size)
        require(round.members[static_cast<std::size_t>(old.group_rank)].node_id == old.node_id, "{} lost rank {}",
                old.node_id, old.group_rank);
  }
  require(round.restarts_used <= std::min(policy_.max_restarts, counts_.failures), "{} restarts of {}, {} failures",
          round.restarts_used, policy_.max_restarts, counts_.failures);
  last_round_ = round;
  stayed_ = std::move(ids);
  said_ready_.clear();
  said_success_.clear();
}

void SimulatedJob::check_started(const Round& round) {
  ++counts_.starts;
  require(last_round_ && round.generation == last_round_->generation, "a round was started that is not the latest");
  for (const auto& member : round.members)
    require(said_ready_.contains(member.node_id), "generation {} was started before {} was ready", round.generation,
            member.node_id);
}

void SimulatedJob::check_ended(const Verdict& verdict) {
  ++counts_.verdicts;
  counts_.successes += verdict.success;
  require(verdict.success == (verdict.exit_code == 0), "exit code {} with success {}", verdict.exit_code,
          verdict.success);
  require(!verdict.reason.empty(), "a verdict without a reason");
  if (verdict.success) {
    for (const auto& member : last_round_->members)
      require(said_success_.contains(member.node_id), "success before node {} has succeeded", member.node_id);
  }
  verdict_ = verdict;
}

void SimulatedJob::hear(const std::shared_ptr<Agent>& agent, const MembershipMessage::What& what) {
  if (const auto* proposed = std::get_if<RoundProposed>(&what)) {
    const std::int64_t generation = proposed->round.generation;
    agent->proposed = generation;
    const auto stopping = agent->running ? delay(0, 4'000) : delay(0, 50);
    in_life(agent, agent->life, now_ + stopping, [this, agent, generation] { say_ready(agent, generation); });
  } else if (const auto* started = std::get_if<RoundStarted>(&what)) {
    const std::int64_t generation = started->round.generation;
    if (agent->proposed != generation) return;  // taken back by a later proposal
    require(!agent->running, "node {} is to start generation {} while it runs {}", agent->id, generation,
            agent->running.value_or(-1));
    agent->running = generation;
    in_life(agent, agent->life, now_ + delay(500, 10'000),
            [this, agent, generation] { finish_running(agent, generation); });
  } else if (std::holds_alternative<NodeDropped>(what) || std::holds_alternative<JoinRefused>(what)) {
    agent->up = false;
    agent->running.reset();
    at(now_ + delay(0, 5'000), [this, agent] { start(agent); });
  }
}

}  // namespace ddprun::testing
