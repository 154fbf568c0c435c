#pragma once

#include <dirent.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "common/atomic_file.h"
#include "common/environment.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"

// Jobs of ddprun-worker, without or with ddprun.
namespace ddprun::testing {

using Words = std::vector<std::string>;

inline std::filesystem::path config(const std::string& name) {
  return std::filesystem::path(DDPRUN_CONFIGS) / name;
}

// One thread per rank: tests compare the bits of jobs, which may depend on the number of threads.
inline const std::map<std::string, std::string> one_thread{{"OMP_NUM_THREADS", "1"}};

inline Child::Result run_worker(Words arguments, std::map<std::string, std::string> variables = one_thread) {
  arguments.insert(arguments.begin(), DDPRUN_WORKER);
  return Child(arguments, variables).wait(std::chrono::seconds(100));
}

// Returns the "sha256:..." of the last line; fails the test if the job has failed.
inline std::string digest_of(const Child::Result& result) {
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  REQUIRE(result.signal_number == 0);
  std::smatch match;
  REQUIRE(std::regex_search(result.out, match, std::regex("done: .* parameters (sha256:[0-9a-f]{64})\n$")));
  return match[1];
}

// Returns the accuracy on the last line, in percent.
inline double accuracy_of(const Child::Result& result) {
  digest_of(result);
  std::smatch match;
  REQUIRE(std::regex_search(result.out, match, std::regex("done: .* accuracy ([0-9.]+) %")));
  return std::stod(match[1]);
}

// ddprun prefixes each worker's lines with its rank.
inline std::string without_prefixes(const std::string& out) {
  return std::regex_replace(out, std::regex("(^|\n)\\[default[0-9]+\\]:"), "$1");
}

// The main job (configs/mnist.cfg) with two ranks under ddprun.
inline Words two_ranks(const Words& more, const Words& options = {}) {
  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2"};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back(config("mnist.cfg"));
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline Child::Result run_job(const Words& words) {
  auto result = Child(words, one_thread).wait(std::chrono::seconds(250));
  result.out = without_prefixes(result.out);
  return result;
}

// Returns the processes of this program whose command line contains a text, in the order of their ids.
inline std::vector<pid_t> processes_of(const std::string& program, const std::string& text) {
  std::vector<pid_t> found;
  DIR* folder = ::opendir("/proc");
  while (const auto* entry = ::readdir(folder)) {
    const auto pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    std::ifstream file(std::string("/proc/") + entry->d_name + "/cmdline", std::ios::binary);
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    if (words.substr(0, words.find('\0')).ends_with(program) && words.find(text) != std::string::npos)
      found.push_back(pid);
  }
  ::closedir(folder);
  std::sort(found.begin(), found.end());
  return found;
}

// Returns the workers of a job with this text in their command lines. A process that stands by is none: it has no rank.
inline std::vector<pid_t> ranks_of(const std::string& text) {
  auto workers = processes_of("ddprun-worker", text);
  std::erase_if(workers, [](pid_t pid) {
    return proc_text(std::to_string(pid), "environ").find("LOCAL_RANK=") == std::string::npos;
  });
  return workers;
}

}  // namespace ddprun::testing
