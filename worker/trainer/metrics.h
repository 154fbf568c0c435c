#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "ddprun/common/unique_fd.h"

namespace ddprun::trainer {

// One optimizer step, over all ranks.
struct StepRecord {
  std::int64_t step = 0;   // 1 is the first
  std::int64_t epoch = 0;  // 1 is the first
  double loss = 0;         // mean over the global batch
  double lr = 0;
  double samples_per_s = 0;
  double compute = 0;  // share of the step's time, on this rank: forward, backward and update
  double wait = 0;     // share of the step's time spent waiting for other ranks
};

struct EvalRecord {
  std::int64_t epoch = 0;  // epochs done
  double eval_loss = 0;
  std::optional<double> accuracy;  // 0 .. 1; none without classes
};

// One line of JSON each, without the end of line. A number that is not finite becomes null.
std::string to_json(const StepRecord& record);
std::string to_json(const EvalRecord& record);

// The part of a metrics file that tells of the steps up to and including last_step: whole lines, up to the first that
// is of a later step or torn.
std::string_view metrics_up_to(std::string_view text, std::int64_t last_step);

// metrics.file: one line a record. Opened at a step, it goes on behind that step's records: after a restart from a
// checkpoint there is neither a gap nor a repeated step. Throws Errc::io naming the file.
class MetricsFile {
 public:
  MetricsFile(const std::filesystem::path& path, std::int64_t last_step);

  void add(const StepRecord& record) { add_line(to_json(record)); }
  void add(const EvalRecord& record) { add_line(to_json(record)); }
  // To the disk: before a checkpoint says that these steps are done.
  void flush();

 private:
  void add_line(const std::string& line);

  std::filesystem::path path_;
  UniqueFd fd_;
};

}  // namespace ddprun::trainer
