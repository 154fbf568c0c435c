#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/forms/data_parallelism.h"
#include "worker/tensor/device_memory.h"
#include "worker/trainer/session/activation_peaks.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// Memory of a rank that trains on a CUDA device, separately for the device and the host, in bytes.
struct DeviceMemoryReport {
  Device device;
  DeviceMemoryUse on_device;  // between two steps
  MemoryByOwner on_host{};    // between two steps, of tensors and of buffers of the process group
  ActivationPeaks activations;
};

// Memory of a training rank, in bytes.
struct MemoryUse {
  std::size_t parameters = 0;  // with buffers
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t activations = 0;  // saved for the backward pass (of a module), or the peak of a step (of a rank)
  ModelPeaks peaks = {};        // of a step (of a rank): with what exists for a part of it, if ranks divide them
  std::optional<DeviceMemoryReport> device = {};  // set for a rank that trains on one
};

struct ModuleMemory {
  std::string name;  // "h.3"
  MemoryUse use;
};

// Reports on a state whose model is on a CUDA device; none if it is on the host.
std::optional<DeviceMemoryReport> device_memory_report(const TrainState& state, const ActivationPeaks& activations);

// Returns what a state holds between two steps; activations and peaks: as given, but no less than between two steps.
MemoryUse memory_of(const TrainState& state, std::size_t activation_peak, const ModelPeaks& peaks = {});

// Returns that by part of the model: the first name of a path, with the second if that is a number. saved: bytes that
// operations saved, by module path.
std::vector<ModuleMemory> memory_by_module(const TrainState& state, const std::map<std::string, std::size_t>& saved);

// {"rank": 0, "parameter_bytes": ..., "gradient_bytes": ..., "optimizer_bytes": ..., "activation_peak_bytes": ...,
//  "parameter_peak_bytes": ..., "gradient_peak_bytes": ...}
// and of a rank that trains on a device
//  {..., "device": "cuda:0", "device_bytes": {"parameters": ..., "gradients": ..., "optimizer": ..., "casts": ...,
//   "communication": ..., "activation_peak": ..., "workspaces": ..., "kept": ..., "others": ..., "free": ...,
//   "total": ...}, "host_bytes": {"parameters": ..., ..., "communication": ..., "activation_peak": ...}}
std::string to_json(int rank, const MemoryUse& use);
// Returns the texts of all ranks, in their order. Collective.
std::vector<std::string> gather_memory(const MemoryUse& own, ProcessGroup& group);

// Returns lines of a table in MiB: the parts, then the whole; for a rank that trains on a device, the device's share.
std::vector<std::string> memory_table(const MemoryUse& all, const std::vector<ModuleMemory>& modules);

}  // namespace ddprun::trainer
