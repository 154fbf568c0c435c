#include "worker/parallel/forms/pipeline/simulation.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace ddprun::pipeline {
namespace {

struct Link {
  std::vector<double> sent, received;  // times, each ascending
};

struct Rank {
  std::size_t next = 0;  // index of the next action
  double free_at = 0;
  const Link* blocked_by = nullptr;  // the link of a send that waits
  std::size_t needed = 0;            // messages that have to be received on that link
  int activations = 0;
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const SimulationOptions& options)
      : schedule_(schedule), options_(options), ranks_(static_cast<std::size_t>(schedule.ranks)) {
    result_.busy.resize(ranks_.size());
    result_.peak_activations.resize(ranks_.size());
    result_.begin.resize(ranks_.size());
  }

  SimulationResult run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        while (advance(r)) progress = true;
    }
    record_deadlock();
    record_messages();
    return std::move(result_);
  }

 private:
  // The time at which a result is at the rank that needs it; none if not computed yet.
  struct Result {
    double at = 0;
    Link* link = nullptr;
  };
  using Key = std::pair<int, int>;  // stage, micro-batch

  const std::vector<Action>& actions(std::size_t rank) const { return schedule_.actions[rank]; }

  bool advance(std::size_t r) {
    Rank& rank = ranks_[r];
    if (rank.blocked_by) return end_send(rank);
    if (rank.next == actions(r).size()) return false;
    const Action& action = actions(r)[rank.next];
    std::vector<const Result*> inputs;
    if (!find_inputs(action, inputs)) return false;
    double begin = rank.free_at;
    for (const Result* input : inputs) begin = std::max(begin, input->at);
    for (const Result* input : inputs)
      if (input->link) input->link->received.push_back(begin);
    result_.begin[r].push_back(begin);
    const double cost = options_.cost(action);
    rank.free_at = begin + cost;
    result_.busy[r] += cost;
    result_.duration = std::max(result_.duration, rank.free_at);
    count_activation(r, action);
    ++rank.next;
    publish(r, action);
    return true;
  }

  bool end_send(Rank& rank) {
    if (rank.blocked_by->received.size() < rank.needed) return false;
    if (rank.needed > 0) rank.free_at = std::max(rank.free_at, rank.blocked_by->received[rank.needed - 1]);
    rank.blocked_by = nullptr;
    return true;
  }

  static bool find(const std::map<Key, Result>& results, Key key, std::vector<const Result*>& inputs) {
    const auto found = results.find(key);
    if (found == results.end()) return false;
    inputs.push_back(&found->second);
    return true;
  }

  bool find_inputs(const Action& action, std::vector<const Result*>& inputs) const {
    const auto [kind, stage, micro_batch] = action;
    if (kind == ActionKind::forward) return stage == 0 || find(activations_, {stage, micro_batch}, inputs);
    if (!computed_.contains({stage, micro_batch})) return false;
    if (kind == ActionKind::backward_weight) return gradients_computed_.contains({stage, micro_batch});
    return stage + 1 == schedule_.stages || find(gradients_, {stage, micro_batch}, inputs);
  }

  void count_activation(std::size_t r, const Action& action) {
    if (action.kind == ActionKind::backward_input) return;
    ranks_[r].activations += action.kind == ActionKind::forward ? 1 : -1;
    result_.peak_activations[r] = std::max(result_.peak_activations[r], ranks_[r].activations);
  }

  void publish(std::size_t r, const Action& action) {
    const Key own{action.stage, action.micro_batch};
    if (action.kind == ActionKind::forward) {
      computed_.insert(own);
      if (action.stage + 1 < schedule_.stages) hand_over(r, activations_, {action.stage + 1, action.micro_batch});
    } else if (action.kind != ActionKind::backward_weight) {
      gradients_computed_.insert(own);
      if (action.stage > 0) hand_over(r, gradients_, {action.stage - 1, action.micro_batch});
    }
  }

  void hand_over(std::size_t r, std::map<Key, Result>& results, Key to) {
    Rank& rank = ranks_[r];
    const auto target = static_cast<std::size_t>(schedule_.rank_of(to.first));
    if (target == r) {
      results[to] = {rank.free_at, nullptr};
      return;
    }
    Link& link = links_[{r, target}];
    link.sent.push_back(rank.free_at);
    results[to] = {rank.free_at + options_.latency, &link};
    if (!options_.pending_sends || link.sent.size() <= *options_.pending_sends) return;
    rank.blocked_by = &link;
    rank.needed = link.sent.size() - *options_.pending_sends;
  }

  void record_deadlock() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Rank& rank = ranks_[r];
      if (rank.blocked_by)
        result_.deadlock.push_back(
            fmt::format("rank {} waits until the result of {} is received", r, to_string(actions(r)[rank.next - 1])));
      else if (rank.next < actions(r).size())
        result_.deadlock.push_back(
            fmt::format("rank {} waits for the input of {}", r, to_string(actions(r)[rank.next])));
    }
  }

  void record_messages() {
    for (const auto& [ends, link] : links_) {
      std::size_t taken = 0;
      for (std::size_t sent = 0; sent < link.sent.size(); ++sent) {
        while (taken < link.received.size() && link.received[taken] <= link.sent[sent]) ++taken;
        result_.peak_messages = std::max(result_.peak_messages, sent + 1 - std::min(taken, sent + 1));
      }
    }
  }

  const Schedule& schedule_;
  const SimulationOptions& options_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::size_t, std::size_t>, Link> links_;
  std::map<Key, Result> activations_, gradients_;  // at the stage that needs them
  std::set<Key> computed_, gradients_computed_;
  SimulationResult result_;
};

}  // namespace

double SimulationResult::bubble() const {
  const double total = duration * static_cast<double>(busy.size());
  return total == 0 ? 0 : 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / total;
}

SimulationResult simulate(const Schedule& schedule, const SimulationOptions& options) {
  return Simulation(schedule, options).run();
}

}  // namespace ddprun::pipeline
