#include "worker/trainer/recovery/standby.h"

#include <array>
#include <charconv>
#include <fcntl.h>
#include <fstream>
#include <string_view>
#include <sys/prctl.h>
#include <unistd.h>
#include <utility>

#include "common/error.h"
#include "common/process_environment.h"
#include "rendezvous/recovery/standby_socket.h"

namespace ddprun::trainer {
namespace {

constexpr const char* waiting_name = "ddprun-standby";
constexpr const char* oom_score_file = "/proc/self/oom_score_adj";
constexpr const char* first_to_end = "1000";

// Returns the number at the beginning of the text.
std::optional<int> leading_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// The kernel may refuse it, as it may in a sandbox.
void set_oom_score(std::string_view score) {
  std::ofstream(oom_score_file) << score;
}

// The name of a process, as in ps(1), for a scope.
class ProcessName {
 public:
  explicit ProcessName(const char* name) {
    ::prctl(PR_GET_NAME, before_.data());
    ::prctl(PR_SET_NAME, name);
  }
  ~ProcessName() { ::prctl(PR_SET_NAME, before_.data()); }
  ProcessName(const ProcessName&) = delete;
  ProcessName& operator=(const ProcessName&) = delete;

 private:
  std::array<char, 16> before_{};
};

void take_over(const std::array<UniqueFd, 3>& standard) {
  for (int target = 0; target < std::ssize(standard); ++target)
    if (::dup2(standard[static_cast<std::size_t>(target)].get(), target) < 0)
      throw make_error(Errc::io, "cannot take over a standard descriptor: {}", errno_text(errno));
}

}  // namespace

Standby::Standby(UniqueFd socket, int ranks) : socket_(std::move(socket)), ranks_(ranks) {
  std::ifstream(oom_score_file) >> oom_score_;
  if (!oom_score_.empty()) set_oom_score(first_to_end);
}

std::optional<Standby> Standby::from(const Environment& environment) {
  const auto text = environment.get(standby_variable);
  if (!text) return std::nullopt;
  const auto descriptor = leading_number(*text);
  if (!descriptor || *descriptor <= STDERR_FILENO || ::fcntl(*descriptor, F_SETFD, FD_CLOEXEC) != 0)
    throw make_error(Errc::usage, "the environment variable {} is \"{}\"; it should be an open descriptor",
                     standby_variable, *text);
  const auto ranks = leading_number(environment.get("WORLD_SIZE").value_or(""));
  return Standby(UniqueFd(*descriptor), ranks.value_or(1));
}

bool Standby::wait() {
  report_ready(socket_.get());
  const auto adoption = [this] {
    const ProcessName name(waiting_name);  // after the report, so that a process of this name can be adopted
    return receive_adoption(socket_.get());
  }();
  socket_.reset();
  if (!adoption) return false;
  if (!oom_score_.empty()) set_oom_score(oom_score_);
  take_over(adoption->standard);
  replace_environment(adoption->environment);
  return true;
}

}  // namespace ddprun::trainer
