#include "launcher/dashboard/faults.h"

#include <optional>

#include <fmt/format.h>

#include "common/printable.h"
#include "common/signal_name.h"

namespace ddprun::dashboard {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// A worker that fails because another one is silent reports that, as those do that have lost it.
std::optional<std::string> silence_in(std::string_view text) {
  const bool is_freeze = has(text, "frozen") || has(text, "process is stopped") || has(text, "uninterruptible sleep");
  if (is_freeze && !has(text, "cut off")) return "freeze";
  return has(text, "no heartbeat") ? std::optional<std::string>("cut") : std::nullopt;
}

}  // namespace

std::string fault_in(std::string_view reason) {
  if (auto silence = silence_in(reason)) return *silence;
  if (has(reason, "failed: out of memory")) return "oom";
  if (has(reason, "failed: ended by SIG")) return "signal";
  if (has(reason, "failed: exit code")) return "exit";
  return "membership";
}

std::string fault_of(const WorkerFailure& failure) {
  if (failure.cause.starts_with("out of memory")) return "oom";
  for (const auto& text : {failure.cause, failure.message})
    if (auto silence = silence_in(text)) return *silence;
  return failure.signal_number != 0 ? "signal" : "exit";
}

bool is_loss(std::string_view reason) {
  return has(reason, " lost: ");
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
