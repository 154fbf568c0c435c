#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "ddprun/common/error.h"

namespace ddprun {

// Tells the launcher why this process fails: the JSON that torchelastic's agents read from TORCHELASTIC_ERROR_FILE,
//   {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS"}}}
// Written whole or not at all. timestamp: seconds since the epoch. ddprun reads the kind from extraInfo: "consequence":
// true if this process fails because another did, "usage_error": true for the user's mistake, found at the start of
// the process, whose message ddprun prints once in place of a failure report. Throws Errc::io.
enum class FailureKind { failure, consequence, usage_error };
void write_error_file(const std::filesystem::path& path, const std::string& message, std::int64_t timestamp,
                      FailureKind kind = FailureKind::failure);

// True for errors that another rank's end leads to.
bool is_consequence(Errc code);

// From now on an exception that nobody catches, in whatever thread, leaves its text in the error file before the
// process aborts. An empty path: does nothing.
void write_error_file_at_terminate(const std::filesystem::path& path);

// The body of a worker's main: runs it, says what exception left it on standard error and in TORCHELASTIC_ERROR_FILE,
// and returns the exit code (0; 2 for Errc::usage; else 1).
//   int main() { return ddprun::record(train); }
int record(const std::function<void()>& body);

}  // namespace ddprun
