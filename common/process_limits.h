#pragma once

#include <exception>
#include <string>

// Error texts that name the resource limits of this process.
namespace ddprun {

// " (ulimit -v is 200000 KiB, ulimit -u is 4096)": the soft limits of address space and processes that are set; empty
// when there are none.
std::string process_limits_text();

// Returns what(), except where that names no resource: std::thread's "Resource temporarily unavailable" and
// "std::bad_alloc" become sentences that name the limit.
std::string exception_text(const std::exception& exception);

}  // namespace ddprun
