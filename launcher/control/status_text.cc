#include "launcher/control/status_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/rounding.h"
#include "common/signal_name.h"

namespace ddprun {
namespace {

// "12 s", "2 min 03 s", "1 h 04 min"
std::string age_text(JobStatus::Age age) {
  const auto seconds = age.count() / 1000;
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string node_line(const JobStatus::Node& node) {
  const auto name = node.group_rank >= 0 ? fmt::format("node {}", node.group_rank) : node.state;
  const auto address = node.address.empty() || node.address == node.host ? "" : fmt::format(" ({})", node.address);
  const auto ranks = node.group_rank < 0 ? ""
                     : node.nproc == 1
                         ? fmt::format(", rank {}", node.first_rank)
                         : fmt::format(", ranks {}-{}", node.first_rank, node.first_rank + node.nproc - 1);
  // The default heartbeat interval is a second.
  const auto silent = node.heard > std::chrono::seconds(3) ? ", last heartbeat " + age_text(node.heard) + " ago" : "";
  return fmt::format("  {:<7} host {}{}{}{}, joined {} ago{}\n", name, node.host, address, ranks,
                     node.warm ? ", warm" : "", age_text(node.since), silent);
}

// "training: step 120 of 630, epoch 2, loss 0.3210, 12345 samples/s, 25 s left"
std::string training_text(const TrainingReport& training) {
  auto text = fmt::format("training: step {} of {}", training.step, training.total_steps);
  if (training.epoch > 0) text += fmt::format(", epoch {}", training.epoch);
  if (std::isfinite(training.loss)) text += fmt::format(", loss {:.4f}", training.loss);
  if (std::isfinite(training.samples_per_s)) text += fmt::format(", {:.0f} samples/s", training.samples_per_s);
  if (std::isfinite(training.seconds_left) && training.step < training.total_steps)
    text += fmt::format(", {} left", age_text(JobStatus::Age(rounded(1000 * training.seconds_left))));
  return text;
}

std::string nodes_text(const JobStatus& job) {
  const auto wanted = job.min_nodes == job.max_nodes ? fmt::format("{}", job.max_nodes)
                                                     : fmt::format("{}:{}", job.min_nodes, job.max_nodes);
  const auto members =
      std::count_if(job.nodes.begin(), job.nodes.end(), [](const auto& n) { return n.group_rank >= 0; });
  const auto present = job.phase == "forming" ? job.node_count : static_cast<int>(members);
  return fmt::format("{} of {} node{}", present, wanted, job.max_nodes == 1 ? "" : "s");
}

}  // namespace

std::string worker_state_text(const JobStatus::Worker& worker) {
  const auto& now = worker.now;
  const auto age = age_text(worker.since);
  if (now.state == WorkerReport::State::running) return "running for " + age;
  if (now.state == WorkerReport::State::stopped)
    return fmt::format("frozen by {} for {}", signal_name(now.signal_number), age);
  if (now.signal_number != 0) return fmt::format("ended by {} {} ago", signal_name(now.signal_number), age);
  return fmt::format("exited with {} {} ago", now.exit_code, age);
}

std::string job_name(const std::string& run_id) {
  return run_id == "none" ? "the job" : "job " + run_id;
}

std::string status_text(const JobStatus& job) {
  auto text =
      fmt::format("{} ({}): {} for {}, generation {}, {} of {} restarts used, {}", job_name(job.run_id), job.program,
                  job.phase, age_text(job.since), job.generation, job.restarts_used, job.max_restarts, nodes_text(job));
  text += job.world_size > 0 ? fmt::format(", {} worker{}\n", job.world_size, job.world_size == 1 ? "" : "s") : "\n";
  if (!job.waiting_for.empty()) text += "  " + job.waiting_for + "\n";
  if (const auto training = training_of(job)) text += "  " + training_text(*training) + "\n";
  for (const auto& node : job.nodes) {
    text += node_line(node);
    for (const auto& worker : node.workers)
      text += fmt::format("    rank {}  pid {}  {}\n", node.first_rank + worker.now.local_rank, worker.now.pid,
                          worker_state_text(worker));
  }
  if (job.node_count > static_cast<int>(job.nodes.size()))
    text += fmt::format("  and {} more nodes\n", job.node_count - static_cast<int>(job.nodes.size()));
  return text;
}

}  // namespace ddprun
