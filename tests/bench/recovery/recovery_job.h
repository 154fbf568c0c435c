#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "common/deadline.h"
#include "tests/bench/delaying_switch.h"
#include "tests/bench/process.h"
#include "tests/support/netns.h"
#include "tests/support/temp_dir.h"

namespace ddprun::bench {

struct RecoveryJobOptions {
  std::string model = "cnn";
  std::string data = {};             // folder with MNIST's files, for the CNN; empty: generated digits
  std::size_t state_bytes = 0;       // if set, an MLP whose parameters and state of Adam have about this size
  int nodes = 1;                     // number of agents
  bool on_hosts = false;             // each on a host of its own, otherwise all on this one
  std::chrono::nanoseconds delay{};  // of a frame between two hosts
  int batch = 16;                    // batch size of a rank
  int shards = 0;                    // train.shards of the whole step
  bool standby = true;               // recovery.standby
  bool freezes = false;              // a rank is stopped, not killed
  int kills = 5;                     // that the job has to survive
  int undisturbed_steps = 20;        // before the first kill
};

// Milliseconds of each phase of a recovery, in order, from the end of the one before at the slowest rank that was not
// lost.
constexpr std::array phase_names = {"detect", "plan", "form", "heal", "session", "replay"};
struct RecoveryPhases {
  std::array<double, phase_names.size()> ms{};
  double total_ms = 0;        // from the signal until the last of the others has made the step
  double copy_ms = 0;         // from the newcomer's group until all ranks have the same step
  double replacement_ms = 0;  // from the signal until the replacement has made a step
};

// The lines of a file that is being written, each a JSON object.
class RecordFile {
 public:
  explicit RecordFile(std::filesystem::path path) : path_(std::move(path)) {}

  // Returns the lines that were completed since the last call.
  std::vector<boost::json::object> take();

 private:
  const std::filesystem::path path_;
  std::streamoff at_ = 0;
};

// A training job that loses ranks, one after the other.
//
// Ownership: owns the hosts and the processes, and ends both. Errors: Errc::io, and Errc::timeout for a job that makes
//   no progress.
class RecoveryJob {
 public:
  RecoveryJob(const RecoveryJobOptions& options, const std::string& backend, int ranks);

  // The times of undisturbed steps, in ms.
  std::vector<double> undisturbed_steps();
  // Sends a rank SIGKILL or SIGSTOP, and returns when the others have made some steps after the recovery.
  RecoveryPhases lose(int rank);
  // The number of steps up to the last one that were not made, as the metrics show.
  std::int64_t lost_steps() const;
  // The exact size of parameters and the optimizer's state; 0 where options.state_bytes is not set.
  std::size_t state_bytes() const;
  // Bytes a second over one TCP connection that nothing else disturbs, between two hosts or within this one. REQUIRES:
  // the job has been stopped, or not been started.
  double raw_rate() const;

  void start();
  void stop() { agents_.clear(); }

 private:
  void write_config(const std::string& backend) const;
  Process start_agent(int node, int port) const;
  Words on_its_host(int node, Words words) const;
  pid_t pid_of(int rank) const;
  std::vector<pid_t> processes() const;
  void wait_for_standbys() const;
  std::vector<double> wait_for_steps(int count) const;
  std::string in_folder(const char* name) const { return (folder_ / name).string(); }

  const RecoveryJobOptions options_;
  const int ranks_;
  const int hidden_;            // size of each of the MLP's two hidden layers
  const std::int64_t samples_;  // of a step
  const testing::TempDir folder_;
  RecordFile recoveries_;
  std::optional<testing::NetnsHosts> hosts_;
  std::optional<DelayingSwitch> switch_;
  std::vector<Process> agents_;
};

}  // namespace ddprun::bench
