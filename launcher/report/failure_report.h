#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/environment.h"
#include "launcher/report/memory_evidence.h"
#include "launcher/report/worker_status.h"
#include "rendezvous/job_result.h"

namespace ddprun {

// Functions that describe failed workers. Not thread-safe with respect to the environment (time zone); no state.

// A worker's error file, as torchrun's @record writes it: {"message": {"message": text, "extraInfo": {"py_callstack":
// text, "timestamp": seconds}}} or {"message": text, "timestamp": seconds}. Our workers add to extraInfo "consequence":
// true (it failed because another did) and "usage_error": true (the user's mistake, found at its start).
struct ErrorFile {
  std::string message;              // the traceback where there is one
  std::optional<double> timestamp;  // seconds since the epoch, usually whole ones
  bool consequence = false;
  bool usage_error = false;
};
// A larger error file is not read.
inline constexpr std::size_t largest_error_file = std::size_t{1} << 20;
// Returns nullopt when the text has neither form: an incomplete error file must not hide the failure itself.
std::optional<ErrorFile> parse_error_file(std::string_view text);

// The time of a failure that was noticed at noticed_us and whose error file has this timestamp. A timestamp in whole
// seconds is taken as the latest moment of that second that is not after noticed_us, so that rounding does not make a
// late failure the first one. Times are microseconds since the epoch.
std::int64_t failure_time_us(std::int64_t noticed_us, std::optional<double> timestamp);

// The failed worker, for describe_failure().
struct FailedWorker {
  int rank = 0;
  int local_rank = 0;
  int group_rank = 0;
  std::string host;
  std::string error_file;  // path; neither it nor the rank's label next to it need exist
  std::string last_lines;  // the end of its standard error
  std::string cause;       // facts beyond the exit code or signal; may be empty
};

// The cause of a process's end as far as it is known beyond its exit code or signal, given the kernel's evidence of
// memory shortage; may be empty.
std::string cause_of(const ProcessExit& exit, const MemoryEvidence::Finding& memory);

// Combines the known facts, including the error file, which it reads. REQUIRES: !exit.success()
WorkerFailure describe_failure(const FailedWorker& worker, const ProcessExit& exit, std::int64_t noticed_us);

// Sorts the root cause to the front (is_likelier_cause).
void root_cause_first(std::vector<WorkerFailure>& failures);

// The content of the error file that a scheduler requested from the agent itself: the root cause's error file with
// message.errorCode set to its exit code (negative: signal), or a new one of the same form.
std::string scheduler_error_file(const WorkerFailure& root);
// Writes that content to the agent's own TORCHELASTIC_ERROR_FILE, if it is set. A failed write is logged as a warning.
void report_to_scheduler(const Environment& environment, const std::string& error_file);
// Warns at the start of a job if report_to_scheduler() could not write there.
void check_scheduler_file(const Environment& environment);

// torchrun's failure summary, with failures.front() as the root cause, followed by the end of its standard error unless
// that ends with the reason. It is empty without failures and for a usage error, which is a line of the log.
std::string failure_summary(const std::string& title, const std::vector<WorkerFailure>& failures);

}  // namespace ddprun
