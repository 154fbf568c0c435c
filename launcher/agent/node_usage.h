#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "rendezvous/node_report.h"

namespace ddprun {

// Counters that grow: the difference to an earlier reading is the use in between.
struct UsageCounters {
  double busy_ticks = 0;  // those of all processors
  double all_ticks = 0;
  int processors = 0;
  std::int64_t received = 0;  // bytes
  std::int64_t sent = 0;
};
// They read the text of proc_stat(5), and of proc_pid_net(5)'s dev without the loopback interface.
void parse_processor_times(std::string_view stat, UsageCounters& counters);
void parse_network_bytes(std::string_view dev, UsageCounters& counters);
// The bytes of a field of proc_meminfo(5); 0 if there is none.
std::int64_t parse_memory(std::string_view meminfo, std::string_view field);

// Measures the use of this machine, as far as /proc shows it to this process.
//
// Threads: not thread-safe. Errors: none; what cannot be read counts as unused.
class NodeUsageMeter {
 public:
  explicit NodeUsageMeter(std::filesystem::path proc = "/proc") : proc_(std::move(proc)) {}

  // Returns the use since the last call, or the former answer within a second; nullopt before two readings.
  std::optional<NodeUsage> read(std::chrono::steady_clock::time_point now);

 private:
  UsageCounters counters() const;

  std::filesystem::path proc_;
  std::optional<UsageCounters> last_;
  std::chrono::steady_clock::time_point read_at_{};
  std::optional<NodeUsage> usage_;
};

}  // namespace ddprun
