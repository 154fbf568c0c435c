#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "tests/process/launch.h"
#include "tests/support/temp_dir.h"

// ddprun with ddprun-worker, which trains a small CNN; and access to the workers' processes.
namespace ddprun::testing {

// A few seconds of training on generated digits: 100 steps of two ranks, checkpoints every 7.
struct Training {
  TempDir folder;
  Marker marker;
  std::string train_keys;  // lines of [train]

  Words job(const Words& launch, const Words& overrides = {}) const {
    std::ofstream(folder / "train.cfg") << "[data]\nname = digits\nsamples = 3200\ntest_samples = 200\n"
                                           "[train]\nepochs = 2\nbatch_size = 32\n"
                                        << train_keys << "[checkpoint]\ndir = " << (folder / "checkpoints").string()
                                        << "\nevery_steps = 7\n";
    Words words{DDPRUN_PROGRAM};
    words.insert(words.end(), launch.begin(), launch.end());
    words.push_back((folder / "train.cfg").string());
    words.insert(words.end(), overrides.begin(), overrides.end());
    return words;
  }

  int checkpoints() const {
    int count = 0;
    std::error_code absent;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints", absent))
      if (entry.path().filename().string().starts_with("step_")) ++count;
    return count;
  }
};

// Returns the digest on the last line of a training run; empty when there is none.
inline std::string parameters_of(const std::string& output) {
  std::smatch found;
  return std::regex_search(output, found, std::regex("sha256:([0-9a-f]{64})")) ? found[1].str() : "";
}

// Returns the process ids of the job's workers (not of the agent, which has no rank).
inline std::vector<pid_t> workers_of(const Marker& marker, const std::string& rank = "") {
  std::vector<pid_t> pids;
  const auto wanted = std::string(1, '\0') + "RANK=" + (rank.empty() ? "" : rank + std::string(1, '\0'));
  for (const pid_t pid : marker.pids())
    if ((std::string(1, '\0') + proc_text(std::to_string(pid), "environ")).find(wanted) != std::string::npos)
      pids.push_back(pid);
  return pids;
}

}  // namespace ddprun::testing
