#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ddprun::trainer {

// Tells the launcher why this process fails: the JSON that torchelastic's agents read from TORCHELASTIC_ERROR_FILE,
//   {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS"}}}
// Written whole or not at all. timestamp: seconds since the epoch. consequence: this process fails because another did,
// which ddprun reads from extraInfo. Throws Errc::io.
void write_error_file(const std::filesystem::path& path, const std::string& message, std::int64_t timestamp,
                      bool consequence = false);

}  // namespace ddprun::trainer
