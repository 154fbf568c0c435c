#include "tests/bench/launchers.h"

#include <filesystem>

#include "tests/support/torch_python.h"

namespace ddprun::bench {
Words Launcher::line(int workers, const Words& worker, const Words& options) const {
  Words words = command;
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {flag, std::to_string(workers)});
  words.insert(words.end(), worker.begin(), worker.end());
  return words;
}

std::string beside(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

Launcher ddprun_launcher() {
  return {"ddprun", {beside("ddprun"), "--standalone", "--no_python"}, "--nproc_per_node"};
}

std::vector<Launcher> torchruns(const std::string& python) {
  const auto torch = python.empty() ? testing::find_torch({1, 9}) : testing::torch_of(python);
  if (!torch) return {};
  // The maps name a rank that does not exist: 1.13 fails at start without them under Python 3.11.
  Words words{torch->path, "-m", "torch.distributed.run", "--standalone", "--no_python"};
  if (torch->version < std::pair{2, 0}) words.insert(words.end(), {"-r", "9:1", "-t", "9:1"});
  Words quick = words;
  quick.push_back("--monitor_interval=0.01");
  const auto name = "torchrun " + torch->version_text.substr(0, torch->version_text.find_first_of("+a"));
  return {{name, words, "--nproc_per_node", true}, {name + ", 10 ms", quick, "--nproc_per_node", true}};
}

std::vector<Launcher> mpiruns() {
  std::vector<Launcher> found;
  if (const auto path = find_on_path("mpirun.openmpi"))
    found.push_back({"Open MPI", {*path, "--allow-run-as-root", "--oversubscribe"}, "-n"});
  if (const auto path = find_on_path("mpirun.mpich")) found.push_back({"MPICH", {*path}, "-n"});
  return found;
}

}  // namespace ddprun::bench
