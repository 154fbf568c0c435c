#pragma once

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "tests/process/training.h"
#include "tests/support/catch.h"
#include "tests/support/in_time.h"

// A training of four ranks whose workers are killed while it runs: its records, and its workers by rank.
namespace ddprun::testing {

inline constexpr int ranks = 4;
inline constexpr std::chrono::seconds bound{120};

// The overrides of a job of 80 steps of four ranks.
inline Words recorded(const Training& training, const Words& more = {}) {
  Words overrides{"--metrics.file=" + (training.folder / "metrics.jsonl").string(), "--train.batch_size=10",
                  "--data.samples=1600"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

// Returns the steps of the records, in their order.
inline std::vector<std::int64_t> recorded_steps(const Training& training) {
  std::vector<std::int64_t> steps;
  std::ifstream file(training.folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const auto record = boost::json::parse(line).as_object();
    if (record.contains("step")) steps.push_back(record.at("step").to_number<std::int64_t>());
  }
  return steps;
}

inline std::vector<std::int64_t> first_steps(std::int64_t count) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= count; ++step) steps.push_back(step);
  return steps;
}

// Returns the process ids of the workers that exist, by rank.
inline std::map<int, pid_t> workers_by_rank(const Training& training) {
  std::map<int, pid_t> all;
  for (const pid_t pid : training.marker.pids()) {
    const auto variables = '\0' + proc_text(std::to_string(pid), "environ");
    for (int rank = 0; rank < ranks; ++rank)
      if (variables.find('\0' + ("RANK=" + std::to_string(rank)) + '\0') != std::string::npos) all[rank] = pid;
  }
  return all;
}

// Returns whether the job, whose rank 0 has this agent, has made its last step.
inline bool is_done(const Child& agent) {
  return agent.out().find("]:done: ") != std::string::npos;
}

// Throws TooLate where the job is done.
inline void wait_for_step(Child& child, const Training& training, std::int64_t step) {
  child.wait_until(
      [&] {
        const auto steps = recorded_steps(training);
        return (!steps.empty() && steps.back() >= step) || is_done(child);
      },
      "step " + std::to_string(step), bound);
  if (is_done(child)) throw TooLate();
}

// Waits until the workers of these ranks are others than before. Returns those of all ranks. Throws TooLate where the
// job is done.
inline std::map<int, pid_t> wait_for_replacements(Child& child, const Training& training,
                                                  const std::map<int, pid_t>& before, const std::set<int>& lost) {
  std::map<int, pid_t> now;
  const auto is_another = [&](int rank) { return now.at(rank) != before.at(rank); };
  child.wait_until(
      [&] {
        now = workers_by_rank(training);
        return (now.size() == ranks && std::ranges::all_of(lost, is_another)) || is_done(child);
      },
      "replacements for lost ranks", bound);
  if (is_done(child)) throw TooLate();
  return now;
}

// Returns the workers of all ranks. Throws TooLate where the job is done.
inline std::map<int, pid_t> all_workers(Child& child, const Training& training) {
  auto workers = workers_by_rank(training);
  if (workers.size() < ranks) {
    child.wait_until([&] { return is_done(child); }, "worker of each rank, nor the end of the job");
    throw TooLate();
  }
  return workers;
}

// Kills or stops the worker of a rank, and returns once its replacement runs. Throws TooLate where the job is done.
inline void replace(Child& child, const Training& training, int rank, int signal = SIGKILL) {
  const auto before = all_workers(child, training);
  ::kill(before.at(rank), signal);
  auto now = wait_for_replacements(child, training, before, {rank});
  now[rank] = before.at(rank);
  CHECK(now == before);  // the others keep their processes
}

inline int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace ddprun::testing
