#include "rendezvous/membership/worker_failure.h"

#include <tuple>

#include <fmt/format.h>

#include "common/exit_code.h"
#include "common/signal_name.h"

namespace ddprun {

std::string end_description(const WorkerFailure& failure) {
  if (!failure.cause.empty()) return failure.cause;
  if (failure.signal_number != 0) return "ended by " + signal_name(failure.signal_number);
  return failure.exit_code != 0 ? fmt::format("exit code {}", failure.exit_code) : failure.message;
}

std::string failure_text(const WorkerFailure& failure) {
  const std::string pid = failure.pid > 0 ? fmt::format(", pid {}", failure.pid) : "";
  const std::string label = failure.label.empty() ? "" : failure.label + ", ";
  return fmt::format("rank {} ({}local rank {}{}) on host {} failed: {}", failure.rank, label, failure.local_rank, pid,
                     failure.host, end_description(failure));
}

std::string job_result_text(const WorkerFailure& failure, int nodes) {
  if (!failure.usage_error) return failure_text(failure);
  return nodes == 1 ? failure.message
                    : fmt::format("{} (rank {} on host {})", failure.message, failure.rank, failure.host);
}

int exit_code_of(const WorkerFailure& failure) {
  if (failure.signal_number != 0) return exit_for_signal(failure.signal_number);
  return failure.exit_code != 0 ? failure.exit_code : exit_fault;
}

bool is_likelier_cause(const WorkerFailure& a, const WorkerFailure& b) {
  const auto key = [](const WorkerFailure& f) {
    return std::make_tuple(f.consequence, f.time_us, f.signal_number == 0, f.rank);
  };
  return key(a) < key(b);
}

}  // namespace ddprun
