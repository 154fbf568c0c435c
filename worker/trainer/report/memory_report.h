#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/parallel/data_parallelism.h"
#include "ddprun/worker/tensor/device_memory.h"
#include "ddprun/worker/trainer/session/activation_peaks.h"
#include "ddprun/worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// Memory of a rank that trains on a CUDA device, apart for the device and the host, in bytes.
struct DeviceMemoryReport {
  Device device;
  DeviceMemoryUse on_device;  // between two steps
  MemoryByOwner on_host{};    // likewise, of tensors and of buffers of the process group
  ActivationPeaks activations;
};

// Memory of a training rank, in bytes.
struct MemoryUse {
  std::size_t parameters = 0;  // and buffers
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t activations = 0;  // saved for the backward pass (of a module), or the peak of a step (of a rank)
  ModelPeaks peaks = {};        // of a step (of a rank): with what is there for a part of it, where ranks divide them
  std::optional<DeviceMemoryReport> device = {};  // of a rank that trains on one
};

struct ModuleMemory {
  std::string name;  // "h.3"
  MemoryUse use;
};

// Of a state whose model is on a CUDA device; none where it is on the host.
std::optional<DeviceMemoryReport> device_memory_report(const TrainState& state, const ActivationPeaks& activations);

// What a state holds between two steps; activations and peaks: as given, but no less than between two steps.
MemoryUse memory_of(const TrainState& state, std::size_t activation_peak, const ModelPeaks& peaks = {});

// The same by part of the model: the first name of a path, with the second where that is a number. saved: bytes that
// operations saved, by module path.
std::vector<ModuleMemory> memory_by_module(const TrainState& state, const std::map<std::string, std::size_t>& saved);

// {"rank": 0, "parameter_bytes": ..., "gradient_bytes": ..., "optimizer_bytes": ..., "activation_peak_bytes": ...,
//  "parameter_peak_bytes": ..., "gradient_peak_bytes": ...}
// and of a rank that trains on a device
//  {..., "device": "cuda:0", "device_bytes": {"parameters": ..., "gradients": ..., "optimizer": ..., "casts": ...,
//   "communication": ..., "activation_peak": ..., "workspaces": ..., "kept": ..., "others": ..., "free": ...,
//   "total": ...}, "host_bytes": {"parameters": ..., ..., "communication": ..., "activation_peak": ...}}
std::string to_json(int rank, const MemoryUse& use);
// Of all ranks, in their order. Collective.
std::vector<std::string> gather_memory(const MemoryUse& own, ProcessGroup& group);

// Lines of a table in MiB: the parts, then the whole, and of a rank that trains on a device what of it is there.
std::vector<std::string> memory_table(const MemoryUse& all, const std::vector<ModuleMemory>& modules);

}  // namespace ddprun::trainer
