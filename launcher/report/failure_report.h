#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/launcher/report/memory_evidence.h"
#include "ddprun/launcher/workers/worker_process.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

// What a worker's error file says, as torchrun's @record writes it: {"message": {"message": text, "extraInfo":
// {"py_callstack": text, "timestamp": seconds}}} or {"message": text, "timestamp": seconds}.
struct ErrorFile {
  std::string message;              // the traceback where there is one
  std::optional<double> timestamp;  // seconds since the epoch, usually whole ones
  bool consequence = false;         // extraInfo.consequence: it failed because another did (our workers' addition)
};
// Nothing when the text is no such thing: a torn error file must not hide the failure itself.
std::optional<ErrorFile> parse_error_file(std::string_view text);

// The time of a failure that was noticed at noticed_us and whose error file has this stamp. A whole second stands for
// any moment in it, so that the latest one not after noticed_us is taken: a rounded stamp must not make a late failure
// the first.
std::int64_t failure_time_us(std::int64_t noticed_us, std::optional<double> timestamp);

// Where a failure happened, for describe().
struct FailedWorker {
  int rank = 0;
  int local_rank = 0;
  int group_rank = 0;
  std::string host;
  std::string error_file;  // path; need not exist
  std::string last_lines;
  std::string cause;  // where more is known than the code or the signal says
};

// What an end means beside its code or signal, given what the kernel says of memory; empty: nothing more.
std::string cause_of(const ProcessExit& exit, const MemoryEvidence::Finding& memory);

// Puts together what is known, reading the error file. REQUIRES: !exit.success()
WorkerFailure describe_failure(const FailedWorker& worker, const ProcessExit& exit, std::int64_t noticed_us);

// The root cause goes to the front (is_likelier_cause).
void root_cause_first(std::vector<WorkerFailure>& failures);

// What a scheduler that gave the agent an error file of its own finds in it: the root cause's error file with
// message.errorCode set to its exit code (negative: signal), or one of the same shape.
std::string scheduler_error_file(const WorkerFailure& root);
// Writes it where the environment asks for one (TORCHELASTIC_ERROR_FILE). What stands in the way is a warning.
void tell_scheduler(const Environment& environment, const std::string& error_file);

// torchrun's summary, failures.front() being the root cause, and below it the end of the root cause's standard error.
std::string failure_summary(const std::string& title, const std::vector<WorkerFailure>& failures);

}  // namespace ddprun
