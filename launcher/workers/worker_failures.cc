#include "launcher/workers/worker_failures.h"

#include <csignal>
#include <utility>

#include "common/exit_code.h"
#include "launcher/report/failure_report.h"
#include "launcher/workers/exec_failure.h"

namespace ddprun {
namespace {

// The known cause beyond exit code and signal. A process whose exec failed has no exit code of its own.
std::string cause_of_end(const Worker& worker, const FailureContext& context, ProcessExit& exit) {
  if (!worker.blocked.empty()) return worker.blocked;
  if (worker.exec_error != 0) {
    exit.code = exit_fault;
    return exec_failure_text(context.executable, worker.exec_error);
  }
  if (worker.aborted) {
    const int code = *worker.aborted & 0xff;
    exit = {.pid = exit.pid, .code = code == 0 ? exit_fault : code};
    return fmt::format("it called MPI_Abort with exit code {}", *worker.aborted);
  }
  if (!worker.complaint.empty()) {
    exit.code = exit_fault;
    return worker.complaint;
  }
  if (exit.signal_number != 0 && exit.signal_number == worker.sent_signal) return worker.sent_reason;
  const bool killed = exit.signal_number == SIGKILL || exit.code == exit_for_signal(SIGKILL);
  return cause_of(exit, killed ? context.memory.about(exit.pid, exit.peak_kib) : MemoryEvidence::Finding{});
}

}  // namespace

WorkerFailure failure_of(const Worker& worker, const FailureContext& context, std::string last_lines,
                         std::int64_t noticed_us) {
  auto exit = worker.exit.value_or(ProcessExit{.pid = worker.process.pid, .code = exit_fault});
  const auto cause = cause_of_end(worker, context, exit);
  auto failure = describe_failure({.rank = context.first_rank + worker.local_rank,
                                   .local_rank = worker.local_rank,
                                   .group_rank = context.group_rank,
                                   .host = context.host,
                                   .error_file = worker.error_file,
                                   .last_lines = std::move(last_lines),
                                   .cause = cause},
                                  exit, noticed_us);
  if (!context.error_files_stay) failure.error_file.clear();
  return failure;
}

}  // namespace ddprun
