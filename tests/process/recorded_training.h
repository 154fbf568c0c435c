#pragma once

#include <csignal>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "tests/process/training.h"
#include "tests/support/catch.h"

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
  for (int rank = 0; rank < ranks; ++rank)
    for (const pid_t pid : workers_of(training.marker, std::to_string(rank))) all[rank] = pid;
  return all;
}

inline void wait_for_step(Child& child, const Training& training, std::int64_t step) {
  child.wait_until(
      [&] {
        const auto steps = recorded_steps(training);
        return !steps.empty() && steps.back() >= step;
      },
      "step " + std::to_string(step), bound);
}

// Kills or stops the worker of a rank, and returns once its replacement runs.
inline void replace(Child& child, const Training& training, int rank, int signal = SIGKILL) {
  const auto before = workers_by_rank(training);
  REQUIRE(before.size() == ranks);
  REQUIRE(::kill(before.at(rank), signal) == 0);
  child.wait_until(
      [&] {
        const auto now = workers_by_rank(training);
        return now.size() == ranks && now.at(rank) != before.at(rank);
      },
      "a replacement for rank " + std::to_string(rank), bound);
  auto now = workers_by_rank(training);
  now[rank] = before.at(rank);
  CHECK(now == before);  // the others keep their processes
}

inline int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace ddprun::testing
