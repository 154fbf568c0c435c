#include "launcher/workers/guardian.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "common/log.h"
#include "common/signal_name.h"

namespace ddprun {
namespace {

using Command = GuardianRecord::Command;

// This time is enough to kill and remove everything that a failed agent has left.
constexpr std::chrono::seconds end_timeout{5};

// The guardian's working directory is not this one.
std::string absolute_text(const std::filesystem::path& path) {
  std::error_code failure;
  const auto whole = std::filesystem::absolute(path, failure);
  return failure ? std::string() : whole.string();
}

}  // namespace

Guardian::Guardian() : processes_{GuardianProcess("ddprun-guardian"), GuardianProcess("job-guardian")} {
  processes_[0].start(GuardianProcess::Method::fork);
  processes_[1].start_unawaited();  // the first one is enough when a signal to this process group ends all others
  processes_[0].wait_until_detached();
}

Guardian::~Guardian() {
  for (auto& process : processes_) process.close();
  const auto deadline = Deadline::in(end_timeout);
  for (auto& process : processes_) {
    if (!process.wait_for_end(deadline)) {
      log::warn("the guardian process (pid {}) has not ended within {} s; killing it", process.pid(),
                end_timeout.count());
      process.kill();
    }
    process.reap();
  }
}

void Guardian::add_own_group() const noexcept {
  for (const auto& process : processes_) process.send_own_group();
}

void Guardian::remember_group(pid_t group) {
  groups_.push_back(group);
  unconfirmed_.push_back(group);
}

void Guardian::confirm_groups() {
  for (auto& process : processes_) process.send(Command::add_group, unconfirmed_);
  unconfirmed_.clear();
}

void Guardian::remove_groups(std::span<const pid_t> groups) {
  const std::set<pid_t> removed(groups.begin(), groups.end());
  const auto is_removed = [&](pid_t group) { return removed.contains(group); };
  std::erase_if(groups_, is_removed);
  std::erase_if(unconfirmed_, is_removed);
  for (auto& process : processes_) process.send(Command::remove_group, groups);
}

void Guardian::set_marker(const std::string& prefix) {
  marker_ = prefix;
  for (auto& process : processes_) process.send(Command::set_marker, marker_);
}

void Guardian::remove_with_job(const std::filesystem::path& path) {
  paths_.push_back(absolute_text(path));
  for (auto& process : processes_) process.send(Command::add_path, paths_.back());
}

void Guardian::keep_after_job(const std::filesystem::path& path) {
  const auto kept = absolute_text(path);
  std::erase(paths_, kept);
  for (auto& process : processes_) process.send(Command::remove_path, kept);
}

bool Guardian::owns(pid_t pid) const {
  return std::any_of(processes_.begin(), processes_.end(), [pid](const auto& process) { return process.pid() == pid; });
}

void Guardian::record_end(pid_t pid, int signal_number) {
  for (auto& process : processes_)
    if (process.pid() == pid) process.record_end(signal_number);
}

std::string Guardian::restart(std::size_t index) {
  auto& process = processes_[index];
  const int signal_number = process.reap();
  process.start(GuardianProcess::Method::exec);
  process.wait_until_detached();
  restarted_ = true;
  process.send(Command::add_group, groups_);
  process.send(Command::set_marker, marker_);
  for (const auto& path : paths_) process.send(Command::add_path, path);
  return signal_number != 0 ? signal_name(signal_number) : "";
}

}  // namespace ddprun
