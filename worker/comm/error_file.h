#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "common/error.h"

namespace ddprun {

// Writes why this process fails, for its launcher: the JSON that torchelastic's agents read from
// TORCHELASTIC_ERROR_FILE,
//   {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS"}}}
// The write is atomic. timestamp: seconds since the epoch. ddprun reads the kind from extraInfo: "consequence":
// true if this process fails because another did, "usage_error": true for the user's mistake, found at the start of
// the process, whose message ddprun prints once in place of a failure report. Throws Errc::io.
enum class FailureKind { failure, consequence, usage_error };
void write_error_file(const std::filesystem::path& path, const std::string& message, std::int64_t timestamp,
                      FailureKind kind = FailureKind::failure);

// Returns whether an error of this code follows from the end of another rank.
bool is_consequence(Errc code);

// From now on the text of an exception that is not caught, in any thread, is written to the error file before the
// process aborts. Does nothing for an empty path.
void write_error_file_at_terminate(const std::filesystem::path& path);

// Runs the body of a worker's main. Reports an exception that leaves it on standard error and in
// TORCHELASTIC_ERROR_FILE, and returns the exit code: 0; 2 for Errc::usage; otherwise 1.
//   int main() { return ddprun::record(train); }
int record(const std::function<void()>& body);

}  // namespace ddprun
