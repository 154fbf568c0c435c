#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"
#include "worker/tasks/task.h"
#include "worker/trainer/session/expert_use.h"

namespace ddprun::trainer {

// One optimizer step, over all ranks.
struct StepRecord {
  std::int64_t step = 0;   // 1 is the first
  std::int64_t epoch = 0;  // 1 is the first
  double loss = 0;         // mean over the global batch
  double lr = 0;
  double samples_per_s = 0;
  double compute = 0;                     // share of the step's time, on this rank: forward, backward and update
  double wait = 0;                        // share of the step's time spent waiting for other ranks
  std::optional<double> grad_norm = {};   // that of all gradients, before they are clipped; none: the key is left out
  std::optional<double> loss_scale = {};  // the one with which the gradients were computed; none: the key is left out
  std::int64_t skipped_steps = 0;         // those of the run so far; with a loss scale
  std::uint64_t bytes_sent = 0;           // those sent by this rank over the network; 0: the key is left out
  std::optional<ExpertUse> experts = {};  // if none, the keys are left out
  // The number of steps since the last record by the age of their gradients in updates; empty: the key is left out.
  std::vector<std::int64_t> staleness = {};
};

struct EvalRecord {
  std::int64_t epoch = 0;  // epochs done
  double eval_loss = 0;
  std::optional<double> accuracy;  // 0 .. 1; none if there are no classes
  std::vector<tasks::Figure> others = {};
};

// Each returns one line of JSON, without the end of line. A number that is not finite becomes null.
std::string to_json(const StepRecord& record);
std::string to_json(const EvalRecord& record);

// Returns the records of a metrics file up to and including last_step: all lines before the first one that is
// incomplete or of a later step.
std::string_view metrics_up_to(std::string_view text, std::int64_t last_step);

// metrics.file: one line per record. Opened at a step, it goes on after that step's records: after a restart from a
// checkpoint no step is missing or repeated.
//
// Ownership: owns the open file. Threads: one at a time. Errors: Errc::io naming the file.
class MetricsFile {
 public:
  MetricsFile(const std::filesystem::path& path, std::int64_t last_step);

  void add(const StepRecord& record) { add_line(to_json(record)); }
  void add(const EvalRecord& record) { add_line(to_json(record)); }
  void add_line(const std::string& line);  // a record of another kind, without "step"
  // Return the size in bytes, and cut the file to a size. A pipe or a terminal has no size and keeps what it was given.
  std::size_t size() const;
  void cut(std::size_t size);
  // Flushes to the disk: to be called before a checkpoint records that these steps are done.
  void flush();

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  bool is_file_ = false;
};

}  // namespace ddprun::trainer
