#include "launcher/workers/sleep_watch.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/error.h"

namespace ddprun {
namespace {

template <class Number>
Number field(std::string_view status, std::string_view key) {
  auto at = status.find(key);
  if (at == std::string_view::npos) return 0;
  at = status.find_first_not_of(" \t", at + key.size());
  Number value = 0;
  if (at != std::string_view::npos) std::from_chars(status.data() + at, status.data() + status.size(), value);
  return value;
}

// Returns empty text for a process or thread that has ended meanwhile.
std::string text_of(const std::string& path) {
  try {
    return read_whole_file(path);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

ThreadSleep parse_thread_sleep(std::string_view status) {
  return {.thread = field<pid_t>(status, "\nPid:"),
          .uninterruptible = status.find("\nState:\tD") != std::string_view::npos,
          .switches = field<std::uint64_t>(status, "\nvoluntary_ctxt_switches:") +
                      field<std::uint64_t>(status, "\nnonvoluntary_ctxt_switches:")};
}

std::vector<ThreadSleep> thread_sleeps(pid_t process) {
  std::vector<ThreadSleep> threads;
  std::error_code gone;
  std::filesystem::directory_iterator task(fmt::format("/proc/{}/task", process), gone);
  for (; !gone && task != std::filesystem::directory_iterator(); task.increment(gone))
    if (const auto status = text_of(task->path() / "status"); !status.empty())
      threads.push_back(parse_thread_sleep(status));
  return threads;
}

std::string wait_channel(pid_t process, pid_t thread) {
  const auto text = text_of(fmt::format("/proc/{}/task/{}/wchan", process, thread));
  return text == "0" ? "" : text;
}

std::chrono::milliseconds SleepWatch::interval() const {
  using std::chrono::milliseconds;
  return std::clamp(limit_ / 4, milliseconds(1), milliseconds(5000));
}

std::optional<SleepWatch::Finding> SleepWatch::observe(pid_t process, const std::vector<ThreadSleep>& threads,
                                                       Time now) {
  std::map<std::pair<pid_t, pid_t>, Sleep> still;
  std::optional<Finding> longest;
  for (const auto& thread : threads) {
    if (!thread.uninterruptible) continue;
    const auto key = std::pair(process, thread.thread);
    const auto known = sleeps_.find(key);
    const bool same = known != sleeps_.end() && known->second.switches == thread.switches;
    const Sleep sleep = same ? known->second : Sleep{.switches = thread.switches, .since = now};
    still[key] = sleep;
    const auto slept = now - sleep.since;
    if (slept >= limit_ && (!longest || slept > longest->slept)) longest = {thread.thread, slept};
  }
  std::erase_if(sleeps_, [process](const auto& each) { return each.first.first == process; });
  sleeps_.merge(still);
  return longest;
}

}  // namespace ddprun
