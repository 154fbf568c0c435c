#pragma once

#include <atomic>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/child.h"
#include "tests/support/processes.h"

// Runs ddprun with ddprun-victim as worker and finds the processes that remain.
namespace ddprun::testing {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

// ddprun <options> victim <verbs>
inline Words command(const Words& options, const Words& verbs) {
  Words words{DDPRUN_PROGRAM};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back(VICTIM_PROGRAM);
  words.insert(words.end(), verbs.begin(), verbs.end());
  return words;
}

inline Words two_workers(Words more = {}) {
  more.insert(more.begin(), {"--standalone", "--nproc_per_node=2"});
  return more;
}

// An environment variable that identifies the processes of one job.
class Marker {
 public:
  Marker() {
    static std::atomic<int> next{0};
    value_ = "job-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
  }
  Variables variables() const { return {{"DDPRUN_TEST_MARKER", value_}}; }
  std::vector<pid_t> pids() const { return processes_with("DDPRUN_TEST_MARKER=" + value_); }

  // Returns the job's process with this name (comm), -1 if there is none.
  pid_t process_named(const std::string& name) const {
    pid_t found = -1;
    for (const pid_t pid : pids())
      if (proc_text(std::to_string(pid), "comm") == name + "\n") found = pid;
    return found;
  }

  // Returns the number of the job's processes without zombies; with a state ('T' stopped), only of those in that state.
  int processes(char state = 0) const {
    int count = 0;
    for (const pid_t pid : pids()) count += state == 0 || state_of(pid) == state;
    return count;
  }

 private:
  static char state_of(pid_t pid) {
    const auto text = proc_text(std::to_string(pid), "stat");
    const auto name_end = text.rfind(')');
    return name_end == std::string::npos ? '?' : text.at(name_end + 2);
  }

  std::string value_;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace ddprun::testing
