#include "ddprun/worker/trainer/preemption.h"

#include <array>
#include <atomic>
#include <csignal>

#include "ddprun/common/error.h"

namespace ddprun::trainer {
namespace {

struct Choice {
  const char* name;
  int signal_number;  // 0: none
};
constexpr std::array<Choice, 4> choices = {{{"none", 0}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}}};

// A handler reaches nothing else.
std::atomic<bool> noticed{false};
static_assert(std::atomic<bool>::is_always_lock_free);
struct sigaction before {};

int number_of(const std::string& name) {
  for (const auto& choice : choices)
    if (name == choice.name) return choice.signal_number;
  throw make_error(Errc::usage, "no notice can come as the signal {}", name);
}

}  // namespace

PreemptionNotice::PreemptionNotice(const std::string& name) : signal_number_(number_of(name)) {
  noticed = false;
  if (signal_number_ == 0) return;
  struct sigaction action {};
  action.sa_handler = [](int) { noticed = true; };
  action.sa_flags = SA_RESTART;
  ::sigaction(signal_number_, &action, &before);
}

PreemptionNotice::~PreemptionNotice() {
  if (signal_number_ != 0) ::sigaction(signal_number_, &before, nullptr);
}

bool PreemptionNotice::given() const {
  return noticed;
}

std::vector<std::string> PreemptionNotice::names() {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.emplace_back(choice.name);
  return names;
}

}  // namespace ddprun::trainer
