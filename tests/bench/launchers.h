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
  std::string flag;   // the flag that takes the number of workers
  bool slow = false;  // a run takes seconds, so there are few runs

  Words line(int workers, const Words& worker, const Words& options = {}) const;
};

// The ddprun in the folder of this program.
Launcher ddprun_launcher();
// PyTorch's launchers, with their defaults and with the shortest sensible monitor interval. python is an interpreter
// with torch; empty: DDPRUN_TORCH_PYTHON, else python3, else the distribution's. Empty when there is no torch.
std::vector<Launcher> torchruns(const std::string& python);
// Open MPI's and MPICH's mpirun, where they are installed.
std::vector<Launcher> mpiruns();

// The path of a program that was built beside this one.
std::string beside(const std::string& name);

}  // namespace ddprun::bench
