#include "launcher/dashboard/faults.h"

#include <fmt/format.h>

#include "common/printable.h"
#include "common/signal_name.h"

namespace ddprun::dashboard {
namespace {

// A worker that fails because another one is silent reports that.
bool is_freeze(std::string_view text) {
  return text.find("frozen") != std::string_view::npos || text.find("uninterruptible sleep") != std::string_view::npos;
}

}  // namespace

std::string fault_in(std::string_view reason) {
  if (is_freeze(reason) && reason.find("cut off") == std::string_view::npos) return "freeze";
  if (reason.find("no heartbeat") != std::string_view::npos) return "cut";
  if (reason.find("failed: out of memory") != std::string_view::npos) return "oom";
  if (reason.find("failed: ended by SIG") != std::string_view::npos) return "signal";
  if (reason.find("failed: exit code") != std::string_view::npos) return "exit";
  return "membership";
}

std::string fault_of(const WorkerFailure& failure) {
  if (failure.cause.starts_with("out of memory")) return "oom";
  if (is_freeze(failure.cause) || is_freeze(failure.message)) return "freeze";
  return failure.signal_number != 0 ? "signal" : "exit";
}

bool is_loss(std::string_view reason) {
  return reason.find(" lost: ") != std::string_view::npos;
}

std::string fault_text(const WorkerFailure& failure) {
  const auto end = failure.signal_number != 0 ? "was ended by " + signal_name(failure.signal_number)
                                              : fmt::format("exited with {}", failure.exit_code);
  auto text = fmt::format("rank {} on host {} ", failure.rank, failure.host);
  const auto& why = failure.cause.empty() ? failure.message : failure.cause;
  // A cause may begin with the way in which the process ended.
  if (why.starts_with("ended by ")) return printable(text + "was " + why, 400);
  text += end;
  if (!why.empty()) text += ": " + why.substr(0, why.find('\n'));
  return printable(text, 400);
}

}  // namespace ddprun::dashboard
