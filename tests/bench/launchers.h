#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/bench/process.h"

namespace ddprun::bench {

// A program that starts workers, as the benchmarks call it: command, flag, number of workers, the worker's own command.
struct Launcher {
  std::string name;
  Words command;
  std::string flag;   // that takes the number of workers
  bool slow = false;  // seconds a run: a few runs have to do

  Words line(int workers, const Words& worker, const Words& options = {}) const;
};

// ddprun as it lies beside this program.
Launcher ddprun_launcher();
// PyTorch's, with its defaults and with the quickest sensible monitor interval. python: an interpreter with torch;
// empty: DDPRUN_TORCH_PYTHON, else python3, else the distribution's. Nothing when there is no torch.
std::vector<Launcher> torchruns(const std::string& python);
// Open MPI's and MPICH's mpirun, where they are installed.
std::vector<Launcher> mpiruns();

// A program that was built beside this one.
std::string beside(const std::string& name);

}  // namespace ddprun::bench
