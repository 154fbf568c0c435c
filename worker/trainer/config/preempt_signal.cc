#include "worker/trainer/config/preempt_signal.h"

#include <array>
#include <csignal>

#include "common/error.h"

namespace ddprun::trainer {
namespace {

struct Choice {
  const char* name;
  int signal_number;  // 0 for none
};
constexpr std::array<Choice, 4> choices = {{{"none", 0}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}}};

}  // namespace

std::vector<std::string> preempt_signal_names() {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.emplace_back(choice.name);
  return names;
}

int preempt_signal_number(const std::string& name) {
  for (const auto& choice : choices)
    if (name == choice.name) return choice.signal_number;
  throw make_error(Errc::usage, "a preemption request cannot be the signal {}", name);
}

}  // namespace ddprun::trainer
