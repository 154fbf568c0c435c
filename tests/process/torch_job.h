#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <string>

#include "tests/process/launch.h"
#include "tests/process/nodes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

// Jobs that run ddp_script.py.
namespace ddprun::testing {

// Importing torch takes each worker seconds, and many of them share few cores.
constexpr std::chrono::seconds torch_timeout{400};

class TorchJob {
 public:
  explicit TorchJob(TorchPython python) : python_(std::move(python)) {}

  // Runs ddprun <options> ddp_script.py <checkpoint> <arguments>.
  Child start(const Words& options, const Words& arguments, Variables variables = {}) const {
    return start_by({DDPRUN_PROGRAM}, options, arguments, std::move(variables));
  }
  // Starts the same job under PyTorch's own launcher.
  Child start_by_torchrun(const Words& options, const Words& arguments, Variables variables = {}) const {
    return start_by({python_.path, "-m", "torch.distributed.run"}, options, arguments, std::move(variables));
  }

  bool checkpoint_there() const { return std::filesystem::exists(checkpoint()); }
  std::string release_file() const { return (folder_ / "release").string(); }
  // Returns variables for a script whose ranks do not use the launcher's store.
  Variables meeting() const { return {{"DDP_SCRIPT_FILE_STORE", (folder_ / "meeting").string()}}; }
  void release() const { std::ofstream{release_file()}; }

 private:
  std::string checkpoint() const { return (folder_ / "checkpoint").string(); }

  Child start_by(Words words, const Words& options, const Words& arguments, Variables variables) const {
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {DDP_SCRIPT, checkpoint()});
    words.insert(words.end(), arguments.begin(), arguments.end());
    variables.emplace("PYTHON_EXEC", python_.path);
    variables.emplace("OMP_NUM_THREADS", "1");
    variables.emplace("GLOO_SOCKET_IFNAME", "lo");
    variables.emplace("PYTHONWARNINGS", "ignore");
    variables.emplace("TMPDIR", folder_.path().string());  // torchrun leaves its logs there
    return Child(words, variables);
  }

  TorchPython python_;
  TempDir folder_;
};

// Returns the process id that the script printed, of the newest attempt.
inline pid_t pid_of_rank(const std::string& out, int rank) {
  std::smatch found;
  const std::regex line("rank " + std::to_string(rank) + " of [0-9]+, attempt [0-9]+, pid ([0-9]+)");
  if (!std::regex_search(out, found, line)) throw std::runtime_error("no process id of the rank in\n" + out);
  return std::stoi(found[1]);
}

}  // namespace ddprun::testing
