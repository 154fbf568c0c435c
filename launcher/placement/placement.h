#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/launcher/placement/binding.h"

namespace ddprun {

struct PlacementRequest {
  int workers = 1;
  Binding binding = Binding::none;
  bool everything = false;  // for a preview: look at what is not needed to start the workers too
};

// Where the workers of this node run, and with how many threads.
struct Placement {
  Binding binding = Binding::none;
  CpuList allowed;                   // what this process may use
  std::size_t cores = 0;             // physical ones among them
  std::optional<double> quota;       // processors' worth of time, by control group
  std::size_t gpus = 0;              // visible; 0 also where nobody asked
  std::vector<WorkerPlace> workers;  // by local rank
  bool sets_threads = false;         // the workers get OMP_NUM_THREADS, each its threads
  std::vector<std::string> notices;  // a line each, for people
};

// Reads what is needed of the machine, below root, and divides it. OMP_NUM_THREADS is set unless the environment has
// it; a single worker gets it only where a quota allows less than it sees. Throws Errc::usage as divide().
Placement place_workers(const PlacementRequest& request, const Environment& environment, const CpuList& allowed,
                        const std::filesystem::path& root = "/");

}  // namespace ddprun
