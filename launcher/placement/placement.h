#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/environment.h"
#include "launcher/placement/binding.h"

namespace ddprun {

struct PlacementRequest {
  int workers = 1;
  Binding binding = Binding::none;
  bool for_preview = false;  // also read what is not needed to start the workers
};

// The cores, GPUs and thread counts of this node's workers. A value.
struct Placement {
  Binding binding = Binding::none;
  CpuList allowed;                       // processors that this process may use
  std::size_t cores = 0;                 // their number of physical cores
  std::optional<double> quota;           // CPU quota of the control group, in processors
  std::size_t gpus = 0;                  // number of visible ones; 0 if they were not needed
  std::vector<WorkerPlacement> workers;  // by local rank
  bool sets_threads = false;             // OMP_NUM_THREADS is set to each worker's threads
  std::vector<std::string> notices;      // lines for the log
};

// Reads the machine's topology below root, as far as needed, and divides it. OMP_NUM_THREADS is set unless the
// environment has it; for a single worker only if a quota allows less than the processors it sees. Throws Errc::usage
// where divide() does.
Placement place_workers(const PlacementRequest& request, const Environment& environment, const CpuList& allowed,
                        const std::filesystem::path& root = "/");

}  // namespace ddprun
