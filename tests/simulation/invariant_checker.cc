#include "tests/simulation/invariant_checker.h"

#include <algorithm>
#include <stdexcept>
#include <variant>

#include <fmt/format.h>

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

// A message arrives within this time at every reachable agent.
constexpr Duration delivery_bound = 10s;

template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw std::logic_error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

void InvariantChecker::Counts::add(const Counts& other) {
  for (const auto field :
       {&Counts::proposals, &Counts::starts, &Counts::drops, &Counts::failures, &Counts::results, &Counts::successes,
        &Counts::servers, &Counts::reads, &Counts::superseded, &Counts::rejoins, &Counts::replaced, &Counts::kept,
        &Counts::resumed, &Counts::lost, &Counts::gained, &Counts::moved, &Counts::left})
    this->*field += other.*field;
}

void InvariantChecker::rendezvous_disturbed(Time until) {
  rendezvous_disturbed_until_ = std::max(rendezvous_disturbed_until_, until);
}

// ---- events of the rendezvous

int InvariantChecker::job_started(const JobPolicy& policy) {
  jobs_.push_back({.policy = policy});
  return static_cast<int>(jobs_.size()) - 1;
}

void InvariantChecker::node_joined(int number, const std::string& id) {
  jobs_.at(static_cast<std::size_t>(number)).present.insert(id);
}

void InvariantChecker::node_rejoined(int number, const std::string& id, const FormerRound& former) {
  Job& job = jobs_.at(static_cast<std::size_t>(number));
  job.restarts_before = std::max(job.restarts_before, former.restarts_used);
  if (former.nodes == 0 || !job.rounds.empty()) return;
  for (int earlier = number - 1; earlier >= 0; --earlier) {
    const auto& rounds = jobs_[static_cast<std::size_t>(earlier)].rounds;
    const auto round = rounds.find(former.generation);
    if (round == rounds.end() || !round->second.members.contains(id)) continue;
    return job.awaited.insert(round->second.members.begin(), round->second.members.end());
  }
}

void InvariantChecker::node_left(int number, const std::string& id) {
  Job& job = jobs_.at(static_cast<std::size_t>(number));
  job.present.erase(id);
  job.stayed.erase(id);
  job.session_ended[id] = time_.now();
}

void InvariantChecker::superseded(int number, const std::string& id, int earlier_attempt, int later_attempt) {
  ++counts_.superseded;
  require(later_attempt > earlier_attempt, "attempt {} of node {} replaces its attempt {}", later_attempt, id,
          earlier_attempt);
  Job& job = jobs_.at(static_cast<std::size_t>(number));
  job.stayed.erase(id);  // it has no workers any more
  job.session_ended[id] = time_.now();
}

void InvariantChecker::ready_received(int number, const std::string& id, std::int64_t generation) {
  auto& rounds = jobs_.at(static_cast<std::size_t>(number)).rounds;
  if (const auto round = rounds.find(generation); round != rounds.end()) round->second.ready.insert(id);
}

void InvariantChecker::success_received(int number, const std::string& id, std::int64_t generation) {
  auto& rounds = jobs_.at(static_cast<std::size_t>(number)).rounds;
  if (const auto round = rounds.find(generation); round != rounds.end()) round->second.succeeded.insert(id);
}

void InvariantChecker::reported_failure(int number) {
  ++counts_.failures;
  ++jobs_.at(static_cast<std::size_t>(number)).failures;
}

// Requests that were under way are still answered.
void InvariantChecker::message_sent(int number, const MembershipMessage& message) {
  const bool answers =
      std::holds_alternative<JoinRefused>(message.what) || std::holds_alternative<LeaveAnswered>(message.what);
  require(!jobs_.at(static_cast<std::size_t>(number)).result || answers, "a message follows the job result");
  std::visit([&](const auto& what) { on(number, message.to, what); }, message.what);
}

// Requires that each of these agents, if it stays reachable, has received the message when delivery_bound has passed.
template <class Learnt>
void InvariantChecker::expect_delivery(int number, const std::vector<std::string>& ids, const char* what,
                                       Learnt learnt) {
  const Time sent_at = time_.now();
  time_.after(delivery_bound, [this, number, ids, what, learnt, sent_at] {
    if (rendezvous_disturbed_until_ >= sent_at) return;
    const auto& ended = jobs_.at(static_cast<std::size_t>(number)).session_ended;
    for (const auto& id : ids) {
      const AgentFacts& agent = *agents_.at(id);
      const bool excused = !agent.alive || agent.exiting || agent.disturbed_until >= sent_at ||
                           (ended.contains(id) && ended.at(id) >= sent_at);
      require(excused || learnt(agent), "node {} has not learnt of {} sent {} s ago", id, what,
              std::chrono::duration_cast<std::chrono::seconds>(delivery_bound).count());
    }
  });
}

void InvariantChecker::on(int number, const std::vector<std::string>& to, const RoundProposed& what) {
  ++counts_.proposals;
  Job& job = jobs_.at(static_cast<std::size_t>(number));
  const Round& round = what.round;
  check_ranks(number, job, to, round);
  check_budget(job, round);
  const std::set<std::string> members(to.begin(), to.end());
  job.stayed = members;
  job.rounds[round.generation] = {.round = round, .members = members, .versions = {{0, round}}};
  const std::pair key(number, round.generation);
  std::vector<std::string> ids;
  for (const auto& member : round.members) ids.push_back(member.node_id);
  expect_delivery(number, ids, "a proposal", [key](const AgentFacts& agent) { return agent.proposed_round >= key; });
}

void InvariantChecker::check_ranks(int number, const Job& job, const std::vector<std::string>& to,
                                   const Round& round) const {
  check_layout(job, to, round);
  for (const auto& member : round.members) {
    const auto& [proposed_job, proposed_generation] = agents_.at(member.node_id)->proposed_round;
    require(proposed_job == number || proposed_generation < round.generation,
            "node {} was in generation {} at another server and is now in {}", member.node_id, proposed_generation,
            round.generation);
  }
  if (job.rounds.empty()) return;
  const Round& last = job.rounds.rbegin()->second.round;
  require(round.generation > last.generation, "generation {} after {}", round.generation, last.generation);
  check_places(job, last, round, "");
}

void InvariantChecker::check_layout(const Job& job, const std::vector<std::string>& to, const Round& round) {
  const auto size = static_cast<int>(round.members.size());
  require(size >= job.policy.min_nodes && size <= job.policy.max_nodes, "a round of {} nodes", size);
  std::set<std::string> ids;
  int first_rank = 0;
  for (int i = 0; i < size; ++i) {
    const RoundMember& member = round.members[static_cast<std::size_t>(i)];
    require(member.group_rank == i && member.first_rank == first_rank && member.nproc > 0,
            "generation {}: group rank {} is followed by ranks from {}, not by {} and {}", round.generation,
            member.group_rank, member.first_rank, i, first_rank);
    require(ids.insert(member.node_id).second, "node {} is in generation {} twice", member.node_id, round.generation);
    first_rank += member.nproc;
  }
  require(round.world_size == first_rank, "a world size of {} for {} workers", round.world_size, first_rank);
  for (std::size_t i = 0; i < to.size(); ++i)
    require(i < round.members.size() && to[i] == round.members[i].node_id, "{} gets another node's index", to[i]);
}

// first: a node that may have got group rank 0 instead of its own; or empty.
void InvariantChecker::check_places(const Job& job, const Round& before, const Round& now, const std::string& first) {
  for (const auto& old : before.members)
    if (old.node_id != first && job.stayed.contains(old.node_id) &&
        old.group_rank < static_cast<int>(now.members.size()))
      require(now.members[static_cast<std::size_t>(old.group_rank)].node_id == old.node_id, "{} lost group rank {}",
              old.node_id, old.group_rank);
}

void InvariantChecker::on(int number, const std::vector<std::string>& to, const RoundChanged& what) {
  Job& job = jobs_.at(static_cast<std::size_t>(number));
  const Round& round = what.round;
  require(job.rounds.rbegin()->first == round.generation, "a change of a round that is not the latest");
  RoundFacts& facts = job.rounds.rbegin()->second;
  check_layout(job, to, round);
  check_places(job, facts.round, round, round.members.front().node_id);
  const auto last =
      std::max(facts.versions.rbegin()->first, facts.replacements.empty() ? 0 : facts.replacements.rbegin()->first);
  require(round.group_generation == last + 1, "generation {} of the group follows {}", round.group_generation, last);
  const auto& first = round.members.front().node_id;
  const auto& former_first = facts.round.members.front().node_id;
  require(!what.joins(0), "node {} serves the workers' store of a round that it joins", first);
  const bool moves = first != former_first;
  require(!moves || !job.present.contains(former_first) || facts.members.contains(former_first),
          "the workers' store leaves node {}, which stays", former_first);
  counts_.moved += moves;
  std::set<std::string> staying;
  for (const auto& member : round.members) {
    if (what.joins(member.group_rank)) {
      facts.started.erase(member.node_id);
      facts.succeeded.erase(member.node_id);
      facts.joining.insert(member.node_id);
      facts.gained = true;
      continue;
    }
    require(facts.members.contains(member.node_id), "node {} stays in a round that it was not in", member.node_id);
    staying.insert(member.node_id);
  }
  counts_.lost += staying.size() < facts.members.size();
  counts_.gained += !what.newcomers.empty();
  facts.round = facts.versions[round.group_generation] = round;
  facts.members = job.stayed = std::set<std::string>(to.begin(), to.end());
  const std::tuple key(number, round.generation, round.group_generation);
  expect_delivery(number, to, "a change of the round", [key](const AgentFacts& agent) {
    return agent.changed >= key || agent.proposed_round > std::pair(std::get<0>(key), std::get<1>(key));
  });
}

void InvariantChecker::check_budget(const Job& job, const Round& round) const {
  const int last = job.rounds.empty() ? 0 : job.rounds.rbegin()->second.round.restarts_used;
  const int before = std::max(last, job.restarts_before);
  require(round.restarts_used >= before && round.restarts_used <= before + 1, "{} restarts after {}",
          round.restarts_used, before);
  require(round.restarts_used <= job.policy.max_restarts, "restart {} of {}", round.restarts_used,
          job.policy.max_restarts);
  require(round.restarts_used <= job.restarts_before + job.failures, "{} restarts for {} failures", round.restarts_used,
          job.failures);
}

void InvariantChecker::on(int number, const std::vector<std::string>& to, const RoundStarted& what) {
  ++counts_.starts;
  const Job& job = jobs_.at(static_cast<std::size_t>(number));
  const std::int64_t generation = what.round.generation;
  require(!job.rounds.empty() && job.rounds.rbegin()->first == generation, "a round starts that is not the latest");
  const RoundFacts& round = job.rounds.rbegin()->second;
  for (const auto& id : round.members)
    require(round.ready.contains(id), "generation {} starts before node {} is ready for it", generation, id);
  check_leases(job);
  const std::pair key(number, generation);
  expect_delivery(number, to, "a start",
                  [key](const AgentFacts& agent) { return agent.started >= key || agent.proposed_round > key; });
}

// An agent that is stopped cannot stop its workers.
void InvariantChecker::check_leases(const Job& job) const {
  for (const auto& [id, agent] : agents_) {
    if (!agent->alive || !agent->kept_until || agent->disturbed_until >= *agent->kept_until) continue;
    require(!job.awaited.contains(id) || time_.now() == *agent->kept_until,
            "a round starts while workers of an earlier one run on node {}, within its lease", id);
  }
}

int InvariantChecker::former_job(int number, std::int64_t generation, const std::vector<std::string>& members) const {
  const std::set<std::string> ids(members.begin(), members.end());
  for (int job = number; --job >= 0;) {
    const auto& rounds = jobs_[static_cast<std::size_t>(job)].rounds;
    if (const auto round = rounds.find(generation); round != rounds.end() && round->second.members == ids) return job;
  }
  throw std::logic_error(fmt::format("generation {} goes on, which these nodes have not been in", generation));
}

void InvariantChecker::on(int number, const std::vector<std::string>& to, const RoundResumed& what) {
  ++counts_.resumed;
  Job& job = jobs_.at(static_cast<std::size_t>(number));
  require(job.rounds.empty(), "generation {} goes on at a server that has formed a round", what.generation);
  const int former = former_job(number, what.generation, to);
  const RoundFacts& facts = jobs_[static_cast<std::size_t>(former)].rounds.at(what.generation);
  for (std::size_t i = 0; i < to.size(); ++i) {
    require(facts.round.members.at(i).node_id == to[i], "node {} goes on with another group rank", to[i]);
    require(facts.started.contains(to[i]), "generation {} goes on, which node {} has not started", what.generation,
            to[i]);
    const AgentFacts& agent = *agents_.at(to[i]);
    require(!agent.alive || agent.exiting || agent.started == std::pair(former, what.generation),
            "generation {} goes on, which node {} has left", what.generation, to[i]);
  }
  for (const auto& [running, ids] : running_)
    for (const auto& id : ids)
      require(running == std::pair(former, what.generation) || !facts.members.contains(id),
              "generation {} goes on while node {} runs generation {}", what.generation, id, running.second);
  require(facts.round.restarts_used == job.restarts_before, "{} restarts after {}", job.restarts_before,
          facts.round.restarts_used);
  job.rounds[what.generation] = facts;
  job.stayed = facts.members;
  if (auto nodes = running_.extract({former, what.generation})) {
    nodes.key() = {number, what.generation};
    running_.insert(std::move(nodes));
  }
  const std::pair key(number, what.generation);
  expect_delivery(number, to, "a round that goes on", [key](const AgentFacts& agent) { return agent.started >= key; });
}

void InvariantChecker::on(int number, const std::vector<std::string>& to, const StandbyAsked& what) {
  const Job& job = jobs_.at(static_cast<std::size_t>(number));
  require(static_cast<int>(to.size()) <= job.policy.spares, "{} of {} spares stand by", to.size(), job.policy.spares);
  for (const auto& id : to)
    require(!job.rounds.at(what.generation).members.contains(id) || !job.stayed.contains(id),
            "node {} of generation {} is to stand by", id, what.generation);
}

void InvariantChecker::on(int number, const std::vector<std::string>& to, const RecoveryAsked& what) {
  const auto& round = jobs_.at(static_cast<std::size_t>(number)).rounds.at(what.generation).round;
  require(to.size() == 1 && to.front() == round.members.front().node_id, "a node other than group rank 0 is asked");
}

void InvariantChecker::on(int number, const std::vector<std::string>& to, const WorkersReplaced& what) {
  Job& job = jobs_.at(static_cast<std::size_t>(number));
  require(job.rounds.rbegin()->first == what.generation, "replacements in a round that is not the latest");
  RoundFacts& facts = job.rounds.rbegin()->second;
  const auto count = static_cast<int>(what.failures.size());
  counts_.replaced += count;
  const int before = std::max(facts.round.restarts_used, job.restarts_before);
  require(count > 0 && what.restarts_used == before + count, "{} replacements after {} restarts make {}", count, before,
          what.restarts_used);
  require(what.restarts_used <= job.policy.max_restarts, "restart {} of {}", what.restarts_used,
          job.policy.max_restarts);
  facts.round.restarts_used = what.restarts_used;
  const auto last =
      std::max(facts.versions.rbegin()->first, facts.replacements.empty() ? 0 : facts.replacements.rbegin()->first);
  require(what.group_generation == last + 1, "generation {} of the group follows {}", what.group_generation, last);
  facts.replacements[what.group_generation] = what;
  const std::pair key(number, what.generation);
  // A newcomer's workers that start later find them in the store; a node whose workers are done has none that continue.
  auto running = to;
  std::erase_if(running, [&](const std::string& id) { return facts.joining.contains(id); });
  expect_delivery(number, running, "replacements", [this, key, count = what.group_generation](const AgentFacts& agent) {
    const auto& round = jobs_.at(static_cast<std::size_t>(key.first)).rounds.at(key.second);
    return (agent.started == key && agent.replacements >= count) || agent.proposed_round > key ||
           round.succeeded.contains(agent.id);
  });
}

void InvariantChecker::on(int number, const std::vector<std::string>&, const JobEnded& what) {
  ++counts_.results;
  Job& job = jobs_.at(static_cast<std::size_t>(number));
  const JobResult& result = what.result;
  counts_.successes += result.success;
  require(result.success == (result.exit_code == 0), "exit code {} with success {}", result.exit_code, result.success);
  require(!result.reason.empty(), "a job result without a reason");
  if (result.success) {
    const RoundFacts& last = job.rounds.rbegin()->second;
    for (const auto& member : last.round.members)
      require(last.succeeded.contains(member.node_id), "success before node {} has succeeded", member.node_id);
  } else if (!result.failures.empty()) {
    const int used = std::max(job.rounds.rbegin()->second.round.restarts_used, job.restarts_before);
    require(used == job.policy.max_restarts, "a failure ends the job after {} of {} restarts", used,
            job.policy.max_restarts);
  }
  job.result = result;
  const std::vector<std::string> all(job.present.begin(), job.present.end());
  expect_delivery(number, all, "the job result",
                  [](const AgentFacts&) { return false; });  // an agent that has received it is exiting
}

// A node that may leave keeps its session; it is in no round any more.
void InvariantChecker::on(int number, const std::vector<std::string>& to, const LeaveAnswered& what) {
  if (what.refusal.empty()) jobs_.at(static_cast<std::size_t>(number)).stayed.erase(to.front());
  counts_.left += what.round_goes_on;
}

void InvariantChecker::on(int number, const std::vector<std::string>& to, const NodeDropped&) {
  counts_.drops += static_cast<int>(to.size());
  for (const auto& id : to) node_left(number, id);
}

void InvariantChecker::on(int number, const std::vector<std::string>& to, const JoinRefused&) {
  for (const auto& id : to) node_left(number, id);
}

// ---- events of the nodes

void InvariantChecker::workers_started(const AgentFacts& agent, int number, const Round& round) {
  RoundFacts& facts = jobs_.at(static_cast<std::size_t>(number)).rounds.at(round.generation);
  const auto self = static_cast<std::size_t>(round.self);
  const Round& version = facts.versions.at(round.group_generation);
  require(version.members.at(self).node_id == agent.id && round.world_size == version.world_size,
          "node {} starts as group rank {} of {}", agent.id, self, round.world_size);
  require(facts.started.insert(agent.id).second, "node {} starts generation {} twice", agent.id, round.generation);
  for (const auto& [running, ids] : running_) {
    require(!ids.contains(agent.id), "node {} starts generation {} while it runs generation {}", agent.id,
            round.generation, running.second);
    if (running >= std::pair(number, round.generation)) continue;
    // A newcomer may still stop its earlier workers while the others run.
    for (const auto& id : ids)
      require(!facts.members.contains(id) || facts.joining.contains(id),
              "generation {} runs on node {} while its member {} runs generation {}", round.generation, agent.id, id,
              running.second);
  }
  facts.joining.erase(agent.id);
  running_[{number, round.generation}].insert(agent.id);
}

void InvariantChecker::workers_replaced(AgentFacts& agent, int number, std::int64_t generation,
                                        std::uint64_t group_generation, const std::vector<int>& local_ranks,
                                        const std::set<int>& failed) {
  const auto& facts = jobs_.at(static_cast<std::size_t>(number)).rounds.at(generation);
  require(group_generation > agent.replacements && facts.replacements.contains(group_generation),
          "node {} begins generation {} of the group after {}", agent.id, group_generation, agent.replacements);
  agent.replacements = group_generation;
  std::set<int> own;
  const Round& version = std::prev(facts.versions.upper_bound(group_generation))->second;
  for (const auto& failure : facts.replacements.at(group_generation).failures)
    if (version.members.at(static_cast<std::size_t>(failure.group_rank)).node_id == agent.id)
      own.insert(failure.local_rank);
  require(own == std::set<int>(local_ranks.begin(), local_ranks.end()) && own.size() == local_ranks.size(),
          "node {} replaces {} workers, {} of its own have failed", agent.id, local_ranks.size(), own.size());
  for (const int local_rank : local_ranks)
    require(failed.contains(local_rank), "node {} replaces worker {}, which has not failed", agent.id, local_rank);
  if (!local_ranks.empty()) running_[{number, generation}].insert(agent.id);
}

void InvariantChecker::round_changed(AgentFacts& agent, int number, const Round& round) const {
  const auto& facts = jobs_.at(static_cast<std::size_t>(number)).rounds.at(round.generation);
  require(round.group_generation > agent.replacements, "node {} goes on in generation {} of the group after {}",
          agent.id, round.group_generation, agent.replacements);
  require(facts.started.contains(agent.id), "node {} goes on in a round that it has not started", agent.id);
  agent.replacements = round.group_generation;
}

void InvariantChecker::workers_kept(const AgentFactsPtr& agent, Time until) {
  ++counts_.kept;
  agent->kept_until = until;
  time_.at(until + 1ms, [agent, until] {
    const bool excused = !agent->alive || agent->disturbed_until >= until;
    require(excused || !agent->kept_until || *agent->kept_until > until,
            "node {} lets its workers run beyond its lease", agent->id);
  });
}

void InvariantChecker::workers_ended(const AgentFacts& agent) {
  for (auto round = running_.begin(); round != running_.end();) {
    round->second.erase(agent.id);
    round = round->second.empty() ? running_.erase(round) : std::next(round);
  }
}

void InvariantChecker::agent_ended(const AgentFacts& agent, int number, bool by_job_result) {
  for (const auto& [running, ids] : running_)
    require(!ids.contains(agent.id), "node {} ends and leaves workers of generation {}", agent.id, running.second);
  if (!by_job_result) return;
  const auto& result = jobs_.at(static_cast<std::size_t>(number)).result;
  require(result && result->exit_code == *agent.exit_code, "node {} ends with {}, the job result has {}", agent.id,
          *agent.exit_code, result ? result->exit_code : -1);
}

void InvariantChecker::read(const std::string& value, int number, std::int64_t generation, int rank) {
  ++counts_.reads;
  require(value == fmt::format("{}/{}/{}", number, generation, rank),
          "a worker of job {}, generation {} reads the key of rank {} and gets {}", number, generation, rank, value);
}

// A worker that has not learnt of newcomers expects fewer.
void InvariantChecker::counted(int number, std::int64_t generation, std::int64_t sum, int world_size) const {
  for (auto job = static_cast<std::size_t>(number); job < jobs_.size(); ++job)
    if (const auto round = jobs_[job].rounds.find(generation); round != jobs_[job].rounds.end() && round->second.gained)
      return;
  require(sum <= world_size, "{} of {} workers have counted themselves", sum, world_size);
}

}  // namespace ddprun::testing
