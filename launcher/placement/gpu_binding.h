#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/placement/binding.h"

namespace ddprun {

// torchrun's --numa_binding: the cores of each worker as indices into machine.cores, none for a worker whose GPU has an
// unknown NUMA node (a notice says so). Pure. Throws Errc::usage if a worker has no GPU, its GPU's node has no usable
// core or, for gpu_exclusive, fewer cores than GPUs.
std::vector<std::vector<std::size_t>> bind_to_gpus(const Topology& machine, std::size_t workers, Binding binding,
                                                   std::vector<std::string>& notices);

}  // namespace ddprun
