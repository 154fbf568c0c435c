#pragma once

#include <atomic>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/child.h"

// ddprun with victims as workers, and a look at what is left of them.
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

// A file of /proc, empty where its process is gone.
inline std::string proc_text(const std::string& pid, const std::string& name) {
  std::string text;
  const UniqueFd file(::open(("/proc/" + pid + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  char block[16384];
  for (ssize_t got = 0; file && (got = ::read(file.get(), block, sizeof(block))) > 0;)
    text.append(block, static_cast<std::size_t>(got));
  return text;
}

// A variable that every process of one job carries, and nobody else.
class Marker {
 public:
  Marker() {
    static std::atomic<int> next{0};
    value_ = "job-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
    entry_ = "DDPRUN_TEST_MARKER=" + value_ + std::string(1, '\0');
  }
  Variables variables() const { return {{"DDPRUN_TEST_MARKER", value_}}; }
  // As it stands in /proc/*/environ, its end included.
  const std::string& entry() const { return entry_; }

  // The job's process whose name (comm) is this, -1 if there is none.
  pid_t process_named(const std::string& name) const {
    pid_t found = -1;
    for_each([&](const char* pid) {
      std::string comm;
      std::getline(std::ifstream(std::string("/proc/") + pid + "/comm"), comm);
      if (comm == name) found = std::atoi(pid);
    });
    return found;
  }

  // Processes of the job that exist, zombies left out; of one state ('T' stopped) only when it is given.
  int processes(char state = 0) const {
    int count = 0;
    for_each([&](const char* pid) { count += state == 0 || state_of(pid) == state; });
    return count;
  }

 private:
  template <class Action>
  void for_each(Action action) const {
    DIR* folder = ::opendir("/proc");
    while (const auto* entry = ::readdir(folder)) {
      if (std::atoi(entry->d_name) <= 0) continue;
      if (proc_text(entry->d_name, "environ").find(entry_) != std::string::npos) action(entry->d_name);
    }
    ::closedir(folder);
  }
  static char state_of(const char* pid) {
    std::ifstream file(std::string("/proc/") + pid + "/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto name_end = text.rfind(')');
    return name_end == std::string::npos ? '?' : text.at(name_end + 2);
  }

  std::string value_;
  std::string entry_;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace ddprun::testing
