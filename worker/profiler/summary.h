#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/profiler/event.h"
#include "worker/profiler/overlap.h"
#include "worker/profiler/step_times.h"

namespace ddprun::profiler {

// All calls of an operation in one module, in one direction.
struct SummaryRow {
  std::string operation;
  std::string module;
  bool backward = false;
  std::int64_t calls = 0;
  Seconds time{0};  // without the operations within it
  Seconds host{0};  // for operations on a device: the host's time for queueing them
  double flops = 0;
};

// Returns the events of operations by name, module and direction, the longest first.
std::vector<SummaryRow> rows_of(const std::vector<Event>& events);

// Returns the time in which at least one event of a kind was under way.
Seconds covered_by(const std::vector<Event>& events, Kind kind);

// The record of a rank's CUDA device, of all steps together. See DeviceStep.
struct DeviceUse {
  Seconds hidden{0};
  Seconds copies{0};
  Seconds queueing{0};
  Seconds paced{0};
};

// The record of a rank, of all steps together.
struct RankSummary {
  std::string host;
  StepTimes times;       // those of the compute queue if it is a device's
  Seconds transfers{0};  // the time in which gradients were under way, hidden behind computation or not
  std::size_t peak_bytes = 0;
  std::optional<DeviceUse> device;  // none if the rank trains on the host
  Seconds hidden() const {
    if (device) return device->hidden;
    return transfers > times.wait ? transfers - times.wait : Seconds(0);
  }
};

// Returns whether the device waits for the host, which queues its operations, for most of what it computes.
bool is_launch_bound(const RankSummary& rank);

struct MemoryPart {
  std::string name;  // such as "parameters"
  std::size_t bytes = 0;
};

// The gain of a larger batch, as measured.
struct BatchTrial {
  std::string setting;          // the one that makes it larger: "train.batch_size = 128"
  std::int64_t batch_size = 0;  // the samples of a rank
  double samples_per_s = 0;     // the samples of all ranks
};

// A profile of a job. All times are sums over the steps.
struct Summary {
  int steps = 0;
  std::int64_t batch_size = 0;  // the samples of a rank
  double samples_per_s = 0;     // the samples of all ranks
  std::vector<RankSummary> ranks;
  // The following are those of rank 0.
  std::vector<SummaryRow> rows;
  std::optional<Overlap> overlap;  // none with one rank, or with ranks that do not reduce alike
  std::int64_t allocations = 0;
  double allocated_bytes = 0;
  std::vector<MemoryPart> memory;  // the parts held at the peak
  double peak_flops = 0;           // FLOP/s of a large product on this machine
  std::optional<BatchTrial> larger_batch;
  std::string no_larger_batch;  // the reason why it was not measured
};

// Returns the FLOP/s of the products and convolutions.
double flops_per_s(const std::vector<SummaryRow>& rows);
// Returns the FLOP/s that the machine reaches: those of a large product, or of a row that is faster, since other work
// may have slowed down the measurement of the former.
double best_flops_per_s(const Summary& summary);

// Returns by how much the larger batch trains faster: 0.25 is 25 %; 0 where it was not measured.
double gain_of_larger_batch(const Summary& summary);

}  // namespace ddprun::profiler
