#include "launcher/agent/node_usage.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/statvfs.h>

namespace ddprun {
namespace {

constexpr std::chrono::seconds shortest_interval{1};
constexpr std::int64_t kib = 1024;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

void read_shared_memory(NodeUsage& usage) {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return;
  const auto block = static_cast<std::int64_t>(info.f_frsize);
  usage.shared_memory = block * static_cast<std::int64_t>(info.f_blocks);
  usage.shared_memory_used = usage.shared_memory - block * static_cast<std::int64_t>(info.f_bfree);
}

}  // namespace

void parse_processor_times(std::string_view stat, UsageCounters& counters) {
  std::istringstream lines{std::string(stat)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("cpu")) continue;
    if (!line.starts_with("cpu ")) {
      ++counters.processors;
      continue;
    }
    std::istringstream fields(line.substr(3));
    // The fields user, nice, system, idle, iowait, irq, softirq, steal; the guests' times are parts of the first two.
    std::array<double, 8> ticks{};
    for (auto& tick : ticks) fields >> tick;
    for (const auto tick : ticks) counters.all_ticks += tick;
    counters.busy_ticks = counters.all_ticks - ticks[3] - ticks[4];
  }
}

void parse_network_bytes(std::string_view dev, UsageCounters& counters) {
  std::istringstream lines{std::string(dev)};
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).ends_with(" lo") || line.starts_with("lo:")) continue;
    std::istringstream fields(line.substr(colon + 1));
    std::array<std::int64_t, 9> numbers{};  // received: bytes and seven others; sent: bytes
    for (auto& number : numbers) fields >> number;
    counters.received += numbers.front();
    counters.sent += numbers.back();
  }
}

std::int64_t parse_memory(std::string_view meminfo, std::string_view field) {
  std::istringstream lines{std::string(meminfo)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(field) || line.size() <= field.size() || line[field.size()] != ':') continue;
    std::int64_t value = 0;
    std::istringstream(line.substr(field.size() + 1)) >> value;
    return value * kib;
  }
  return 0;
}

UsageCounters NodeUsageMeter::counters() const {
  UsageCounters counters;
  parse_processor_times(text_of(proc_ / "stat"), counters);
  parse_network_bytes(text_of(proc_ / "net/dev"), counters);
  return counters;
}

std::optional<NodeUsage> NodeUsageMeter::read(std::chrono::steady_clock::time_point now) {
  if (last_ && now - read_at_ < shortest_interval) return usage_;
  const auto current = counters();
  if (last_) {
    const double seconds = std::chrono::duration<double>(now - read_at_).count();
    const double ticks = std::max(1.0, current.all_ticks - last_->all_ticks);
    const auto rate = [&](std::int64_t before, std::int64_t after) {
      return static_cast<double>(std::max<std::int64_t>(0, after - before)) / seconds;
    };
    const auto memory = text_of(proc_ / "meminfo");
    NodeUsage usage{.processors = current.processors,
                    .busy = current.processors * std::max(0.0, current.busy_ticks - last_->busy_ticks) / ticks,
                    .memory = parse_memory(memory, "MemTotal"),
                    .received = rate(last_->received, current.received),
                    .sent = rate(last_->sent, current.sent)};
    usage.memory_used = usage.memory - parse_memory(memory, "MemAvailable");
    read_shared_memory(usage);
    usage_ = usage;
  }
  last_ = current;
  read_at_ = now;
  return usage_;
}

}  // namespace ddprun
