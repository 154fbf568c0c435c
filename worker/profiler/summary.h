#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/worker/profiler/event.h"
#include "ddprun/worker/profiler/overlap.h"
#include "ddprun/worker/profiler/step_times.h"

namespace ddprun::profiler {

// All calls of an operation in one module, in one direction.
struct Row {
  std::string operation;
  std::string module;
  bool backward = false;
  std::int64_t calls = 0;
  Seconds time{0};  // without the operations within it
  Seconds host{0};  // of operations on a device: what the host took to queue them
  double flops = 0;
};

// The events of operations by name, module and direction, the longest first.
std::vector<Row> rows_of(const std::vector<Event>& events);

// The time in which at least one event of a kind was under way.
Seconds covered_by(const std::vector<Event>& events, Kind kind);

// What a rank has recorded of its CUDA device, of all steps together. See DeviceStep.
struct DeviceUse {
  Seconds hidden{0};
  Seconds copies{0};
  Seconds queueing{0};
  Seconds paced{0};
};

// What a rank has recorded, of all steps together.
struct RankSummary {
  std::string host;
  StepTimes times;       // of a device: of its compute queue
  Seconds transfers{0};  // in which gradients were under way, hidden behind computation or not
  std::size_t peak_bytes = 0;
  std::optional<DeviceUse> device;  // none: the rank trains on the host
  Seconds hidden() const {
    if (device) return device->hidden;
    return transfers > times.wait ? transfers - times.wait : Seconds(0);
  }
};

// Whether the device waits for the host, which queues its operations, for most of what it computes.
bool is_launch_bound(const RankSummary& rank);

struct MemoryPart {
  std::string name;  // "parameters"
  std::size_t bytes = 0;
};

// What a larger batch would bring, as measured.
struct BatchTrial {
  std::string setting;          // that makes it larger: "train.batch_size = 128"
  std::int64_t batch_size = 0;  // samples of a rank
  double samples_per_s = 0;     // of all ranks
};

// A profile of a job. Of times, all are sums over the steps.
struct Summary {
  int steps = 0;
  std::int64_t batch_size = 0;  // samples of a rank
  double samples_per_s = 0;     // of all ranks
  std::vector<RankSummary> ranks;
  // Of rank 0:
  std::vector<Row> rows;
  std::optional<Overlap> overlap;  // none: one rank, or ranks that do not reduce alike
  std::int64_t allocations = 0;
  double allocated_bytes = 0;
  std::vector<MemoryPart> memory;  // what is held at the peak
  double peak_flops = 0;           // FLOP/s of a large product on this machine
  std::optional<BatchTrial> larger_batch;
  std::string no_larger_batch;  // why it was not measured
};

// The FLOP/s of the products and convolutions.
double flops_per_s(const std::vector<Row>& rows);

// By how much the larger batch trains faster: 0.25 is 25 %. 0 where it was not measured.
double gain_of_larger_batch(const Summary& summary);

}  // namespace ddprun::profiler
