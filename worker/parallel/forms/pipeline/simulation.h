#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker/parallel/forms/pipeline/schedule.h"

namespace ddprun::pipeline {

// Time is virtual, in any unit.
struct SimulationOptions {
  std::function<double(const Action&)> cost = [](const Action&) { return 1.0; };
  double latency = 0;  // that of a message
  // The number of messages from one rank to another that may be under way before they are taken: a rank that sends one
  // more waits. 0: each send waits until it is received. None: sends never wait.
  std::optional<std::size_t> pending_sends;
};

struct SimulationResult {
  double duration = 0;
  std::vector<double> busy;                // by rank
  std::vector<int> peak_activations;       // by rank: micro-batches times stages whose tape is kept at a time
  std::size_t peak_messages = 0;           // those sent from one rank to another and not taken yet
  std::vector<std::string> deadlock;       // what each rank that did not reach its end waits for; empty if all did
  std::vector<std::vector<double>> begin;  // by rank and action

  // The share of all ranks' time in which they wait.
  double bubble() const;
};

// Runs a schedule: each rank takes its actions in order, each as soon as its inputs are there. A pure function.
SimulationResult simulate(const Schedule& schedule, const SimulationOptions& options = {});

}  // namespace ddprun::pipeline
