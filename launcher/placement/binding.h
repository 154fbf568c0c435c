#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/placement/topology.h"

namespace ddprun {

// The cores that a worker is bound to. Its GPU is the one whose index is its local rank, if there are that many.
enum class Binding {
  none,
  // The values of --bind: cores of the NUMA node of the worker's GPU if that is known for all workers, otherwise an
  // even part of the machine.
  cores,   // its own cores
  l3,      // the cores that share a last-level cache
  numa,    // a NUMA node
  socket,  // a package
  // The values of --numa_binding, as in torchrun: every worker needs a GPU, and GPUs without a worker count as well.
  gpu_node,          // the node of its GPU
  gpu_socket,        // all nodes of that node's package
  gpu_exclusive,     // a part of the node's cores, which are divided among the node's GPUs
  gpu_core_complex,  // a last-level cache of that node, a different one for each of its GPUs as long as there are any
};

// The binding for the values of --bind and --numa_binding; "" and "none" mean none. Throws Errc::usage if both are set.
Binding parse_binding(std::string_view bind, std::string_view numa_binding);
// "bind = cores", "numa_binding = node"; "none".
std::string binding_text(Binding binding);

// The cores, GPU and threads of one worker.
struct WorkerPlacement {
  CpuList cpus;            // the CPUs that it is bound to; empty: not bound
  std::vector<int> nodes;  // NUMA nodes of its CPUs, or of all CPUs if it is not bound
  std::optional<Gpu> gpu;
  int threads = 1;  // its share of the cores
};

struct Division {
  std::vector<WorkerPlacement> workers;  // by local rank
  std::vector<std::string> notices;      // lines for the log
};

// Divides the machine among the workers. Pure. Cores are divided whole, with their hardware threads; the first workers
// get the remainder; if there are more workers than cores, several share one. The threads of a worker are the sum over
// its cores of 1 / (number of workers on the core), limited to its part of the quota (in processors; unset: no limit),
// and at least 1. Throws Errc::usage if --numa_binding asks for something that the machine does not have. REQUIRES:
// workers >= 1 and at least one core.
Division divide(const Topology& machine, int workers, Binding binding, std::optional<double> quota = {});

}  // namespace ddprun
