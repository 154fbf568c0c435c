#include "launcher/workers/nonfatal_signal.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "launcher/workers/descendants.h"

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

std::vector<ThreadSignals> threads_of(pid_t pid) {
  std::vector<ThreadSignals> threads;
  std::error_code gone;
  std::filesystem::directory_iterator task(fmt::format("/proc/{}/task", pid), gone);
  for (; !gone && task != std::filesystem::directory_iterator(); task.increment(gone)) {
    try {
      threads.push_back(parse_thread_signals(read_whole_file((task->path() / "status").string())));
    } catch (const Error&) {  // the thread has ended
    }
  }
  return threads;
}

}  // namespace

// `all` lacks SIGKILL and SIGSTOP, which cannot be blocked, and real-time signals, some of which libc reserves.
bool ThreadSignals::blocks_all() const {
  constexpr std::uint64_t all = 0x7fffffff & ~(1ull << (SIGKILL - 1)) & ~(1ull << (SIGSTOP - 1));
  return (blocked & all) == all;
}

ThreadSignals parse_thread_signals(std::string_view status) {
  return {.blocked = mask(status, "\nSigBlk:"),
          .ignored = mask(status, "\nSigIgn:"),
          .caught = mask(status, "\nSigCgt:"),
          .sleeps = status.find("\nState:\tS") != std::string_view::npos};
}

// A signal that every thread blocks stays pending, so that the process can wait for it. But a thread that blocks all
// signals and does not sleep may be forking, and will unblock them soon.
bool is_nonfatal(const std::vector<ThreadSignals>& threads, int signal_number) {
  const auto bit = std::uint64_t{1} << (signal_number - 1);
  const auto handles = [bit](const ThreadSignals& thread) { return ((thread.ignored | thread.caught) & bit) != 0; };
  const auto blocks = [bit](const ThreadSignals& thread) { return (thread.blocked & bit) != 0; };
  const auto permanently = [](const ThreadSignals& thread) { return thread.sleeps || !thread.blocks_all(); };
  if (std::any_of(threads.begin(), threads.end(), handles)) return true;
  return std::all_of(threads.begin(), threads.end(), blocks) &&
         std::any_of(threads.begin(), threads.end(), permanently);
}

// The kernel reports a thread's state before its mask: one that wakes up in between seems to sleep with all signals
// blocked. Reading twice avoids that.
bool survives(pid_t pid, int signal_number) {
  return is_nonfatal(threads_of(pid), signal_number) && is_nonfatal(threads_of(pid), signal_number);
}

bool send_nonfatal_signal(pid_t group, int signal_number) {
  bool sent_to_leader = false;
  for (const pid_t pid : processes_of_group(group)) {
    if (!survives(pid, signal_number)) continue;
    ::kill(pid, signal_number);
    sent_to_leader |= pid == group;
  }
  return sent_to_leader;
}

}  // namespace ddprun
