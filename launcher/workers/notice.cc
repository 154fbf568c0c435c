#include "ddprun/launcher/workers/notice.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

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

std::vector<ThreadSignals> threads_of(pid_t pid) {
  std::vector<ThreadSignals> threads;
  std::error_code gone;
  std::filesystem::directory_iterator task(fmt::format("/proc/{}/task", pid), gone);
  for (; !gone && task != std::filesystem::directory_iterator(); task.increment(gone)) {
    try {
      threads.push_back(parse_thread_signals(read_whole_file((task->path() / "status").string())));
    } catch (const Error&) {  // it has ended
    }
  }
  return threads;
}

}  // namespace

// But for SIGKILL and SIGSTOP, which nobody can block, and the real-time ones, of which a C library keeps some.
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

// A signal that no thread can take stays with the process. It is meant to, unless all signals are blocked by one that
// runs, or waits for what it forked to come up: then they are let in a moment later.
bool survives(const std::vector<ThreadSignals>& threads, int signal_number) {
  const auto bit = std::uint64_t{1} << (signal_number - 1);
  const auto minds_not = [bit](const ThreadSignals& thread) { return ((thread.ignored | thread.caught) & bit) != 0; };
  const auto blocks = [bit](const ThreadSignals& thread) { return (thread.blocked & bit) != 0; };
  const auto for_good = [](const ThreadSignals& thread) { return thread.sleeps || !thread.blocks_all(); };
  if (std::any_of(threads.begin(), threads.end(), minds_not)) return true;
  return std::all_of(threads.begin(), threads.end(), blocks) && std::any_of(threads.begin(), threads.end(), for_good);
}

namespace {

// A look takes a thread's state a moment before its mask: one that wakes up in between looks as if it slept with all
// blocked. Not twice in a row.
bool surely_survives(pid_t pid, int signal_number) {
  return survives(threads_of(pid), signal_number) && survives(threads_of(pid), signal_number);
}

}  // namespace

bool notify_group(pid_t group, int signal_number) {
  bool leader_takes_it = false;
  for (const pid_t pid : processes_of_group(group)) {
    if (!surely_survives(pid, signal_number)) continue;
    ::kill(pid, signal_number);
    leader_takes_it |= pid == group;
  }
  return leader_takes_it;
}

}  // namespace ddprun
