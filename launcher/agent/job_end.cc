#include "launcher/agent/job_end.h"

#include <algorithm>

#include "common/exit_code.h"
#include "common/log.h"
#include "launcher/report/failure_report.h"

namespace ddprun {

bool keeps_logs(const AgentSpec& spec, const LogFolder& logs) {
  return logs.enabled() && spec.keep_logs;
}

int JobEnd::conclude(const Finish& finish) const {
  const auto summary = failure_summary(spec.group.command.title, finish.failures);
  if (!spec.summarize) console.write(Console::Stream::err, summary);
  if (!finish.last_line.empty()) log::warn("{}", finish.last_line);
  std::string error_file;
  if (!finish.failures.empty()) {
    error_file = scheduler_error_file(finish.failures.front());
    report_to_scheduler(spec.group.environment, error_file);
  }
  // The summary names error files; there is none for a usage error.
  const bool error_files = !summary.empty() && std::ranges::any_of(finish.failures, [](const WorkerFailure& failure) {
    return !failure.error_file.empty();
  });
  const bool keep = keeps_logs(spec, logs) || error_files;
  if (keep) guardian.keep_after_job(logs.temporary());
  logs.remove_if_temporary(keep);
  console.drain(output_timeout);
  if (spec.summarize) spec.summarize(summary, failed_here ? error_file : "");
  return finish.exit_code == exit_success && console.write_failed() ? exit_fault : finish.exit_code;
}

}  // namespace ddprun
