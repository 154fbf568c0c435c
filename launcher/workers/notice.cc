#include "ddprun/launcher/workers/notice.h"

#include <charconv>
#include <csignal>
#include <string>

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/error.h"
#include "ddprun/launcher/workers/descendants.h"

namespace ddprun {
namespace {

std::uint64_t mask(std::string_view status, std::string_view key) {
  auto at = status.find(key);
  if (at == std::string_view::npos) return 0;
  at = status.find_first_not_of(" \t", at + key.size());
  std::uint64_t value = 0;
  if (at != std::string_view::npos) std::from_chars(status.data() + at, status.data() + status.size(), value, 16);
  return value;
}

bool survives(pid_t pid, int signal_number) {
  try {
    return parse_signal_masks(read_whole_file("/proc/" + std::to_string(pid) + "/status")).survives(signal_number);
  } catch (const Error&) {
    return false;  // it has gone
  }
}

}  // namespace

SignalMasks parse_signal_masks(std::string_view status) {
  return {
      .blocked = mask(status, "\nSigBlk:"), .ignored = mask(status, "\nSigIgn:"), .caught = mask(status, "\nSigCgt:")};
}

bool notify_group(pid_t group, int signal_number) {
  bool leader_takes_it = false;
  for (const pid_t pid : processes_of_group(group)) {
    if (!survives(pid, signal_number)) continue;
    ::kill(pid, signal_number);
    leader_takes_it |= pid == group;
  }
  return leader_takes_it;
}

}  // namespace ddprun
