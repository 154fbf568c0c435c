#include "worker/comm/health/process_identity.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

namespace ddprun::comm {
namespace {

struct ProcessState {
  char state = 0;
  std::uint64_t start_time = 0;
};

// Reads fields 3 and 22 of a process's or a thread's file "stat". Field 2 is the program's name in parentheses, which
// may itself contain spaces and parentheses.
std::optional<ProcessState> read_state(const std::filesystem::path& stat) {
  std::ifstream file(stat);
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState result;
  fields >> result.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> result.start_time;
  if (!fields) return std::nullopt;
  return result;
}

std::optional<ProcessState> state_of(pid_t pid) {
  return read_state(fmt::format("/proc/{}/stat", pid));
}

}  // namespace

ProcessIdentity ProcessIdentity::own() {
  const auto state = state_of(::getpid());
  return {::getpid(), state ? state->start_time : 0};
}

bool ProcessIdentity::alive() const {
  const auto state = state_of(pid);
  return state && state->start_time == start_time && state->state != 'Z' && state->state != 'X';
}

bool ProcessIdentity::stopped() const {
  const auto state = state_of(pid);
  return state && state->start_time == start_time && (state->state == 'T' || state->state == 't');
}

bool ProcessIdentity::runs() const {
  if (!alive() || stopped()) return false;
  std::error_code ended;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ended)) {
    const auto state = read_state(thread.path() / "stat");
    if (state && state->state == 'R') return true;
  }
  return false;
}

}  // namespace ddprun::comm
