#pragma once

#include <filesystem>
#include <fstream>

#include "tests/process/launch.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_dir.h"

// Several agents on one machine as the nodes of one job. Each has one worker, which prints its environment in each
// round and then waits for the end of the test.
namespace ddprun::testing {

// Returns the value of a variable in the last environment that this output contains.
inline std::string last_value(const std::string& out, const std::string& name) {
  const auto entry = "\n" + name + "=";
  const auto at = ("\n" + out).rfind(entry);
  if (at == std::string::npos) return "";
  const auto begin = at + entry.size() - 1;
  const auto end = out.find('\n', begin);
  return end == std::string::npos ? "" : out.substr(begin, end - begin);
}

class Node {
 public:
  static constexpr std::chrono::seconds default_timeout{60};

  Node(const Words& words, const Variables& variables) : child_(words, variables) {}

  // Returns a variable of the workers of its latest round.
  std::string variable(const std::string& name) const { return last_value(child_.out(), name); }
  int number(const std::string& name) const { return std::atoi(variable(name).c_str()); }
  int generation() const { return number("TORCHELASTIC_RESTART_COUNT"); }
  const std::string& err() const { return child_.err(); }
  bool has_logged(const std::string& text) const { return err().find(text) != std::string::npos; }
  pid_t pid() const { return child_.pid(); }

  // Waits until this node's workers run in a round of this many nodes with at least this generation.
  void wait_for_round(int nodes, int generation = 0) {
    child_.wait_until([&] { return number("WORLD_SIZE") == nodes && this->generation() >= generation; },
                      "round of " + std::to_string(nodes) + " from generation " + std::to_string(generation),
                      default_timeout);
  }
  void wait_until(const std::function<bool()>& condition, const std::string& what,
                  std::chrono::milliseconds timeout = default_timeout) {
    child_.wait_until(condition, what, timeout);
  }
  void wait_for_err(const std::string& text) { child_.wait_for_err(text, default_timeout); }
  void signal(int number) const { child_.signal(number); }
  Child::Result wait() { return child_.wait(default_timeout); }

 private:
  Child child_;
};

struct Nodes {
  Marker marker;
  TempDir folder;
  std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  Words options;  // for every node

  // conf has further settings of --rdzv_conf.
  Node start(const std::string& conf, const Words& more = {}) const {
    Words words{"--nproc_per_node=1", "--shutdown_timeout=5", "--rdzv_endpoint=" + endpoint,
                "--rdzv_conf=last_call_timeout=1" + (conf.empty() ? "" : "," + conf)};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), more.begin(), more.end());
    return {command(words, {"env", "wait-file=" + done()}), marker.variables()};
  }
  Node host(const std::string& conf = "", const Words& more = {}) const {
    return start("is_host=true" + (conf.empty() ? "" : "," + conf), more);
  }
  Node guest(const std::string& conf = "", const Words& more = {}) const {
    return start("is_host=false" + (conf.empty() ? "" : "," + conf), more);
  }
  // Lets every worker exit with 0.
  void finish() const { std::ofstream(done()).put('\n'); }

 private:
  std::string done() const { return (folder / "done").string(); }
};

}  // namespace ddprun::testing
