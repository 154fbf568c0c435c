#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/launcher/placement/topology.h"

namespace ddprun {

// To which cores a worker is bound. A worker has the GPU whose index is its local rank, where there are that many.
enum class Binding {
  none,
  // --bind. Workers whose GPUs tell a node live there; else they share the machine evenly, neighbours side by side.
  cores,   // cores of its own
  l3,      // the cores that share a last level of cache
  numa,    // a NUMA node
  socket,  // a package
  // --numa_binding, torchrun's: every worker needs a GPU, and all visible GPUs count, with a worker or without.
  gpu_node,          // the node of its GPU
  gpu_socket,        // all nodes of that node's package
  gpu_exclusive,     // its part of the node's cores, divided among the node's GPUs
  gpu_core_complex,  // a last level of cache of that node, another one for each of its GPUs while they last
};

// The binding that the words of --bind and --numa_binding ask for; "" and "none" ask for none. Throws Errc::usage when
// both ask.
Binding parse_binding(std::string_view bind, std::string_view numa_binding);
// As typed: "bind = cores", "numa_binding = node"; "none".
std::string binding_text(Binding binding);

// Where one worker runs.
struct WorkerPlace {
  CpuList cpus;            // it is bound to; empty: not bound
  std::vector<int> nodes;  // NUMA nodes of its CPUs, or of all where it is not bound
  std::optional<Gpu> gpu;  // its own
  int threads = 1;         // its share of the cores, as many as it can keep busy
};

struct Division {
  std::vector<WorkerPlace> workers;  // by local rank
  std::vector<std::string> notices;  // what somebody who asked for a binding should know, a line each
};

// Divides the machine among the workers. Pure: the same on every call. Cores are divided whole, hardware threads and
// all; the first workers get what is left over; more workers than cores share. Threads are a worker's cores, each
// counted by the number of workers that share it, cut to its part of the quota (processors' worth of time, unset: no
// limit); at least 1. Throws Errc::usage when torchrun's words ask for what the machine does not have. REQUIRES:
// workers >= 1 and at least one core.
Division divide(const Topology& machine, int workers, Binding binding, std::optional<double> quota = {});

}  // namespace ddprun
