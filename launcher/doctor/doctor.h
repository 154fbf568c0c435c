#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/environment.h"

namespace ddprun::doctor {

// ddprun doctor: examines this host, or starts a probe on each of several hosts as --hosts starts agents, by ssh or on
// this machine directly, tests the links between all pairs, and prints its findings.
//
// Returns the exit code when the arguments (without the program's name) are those of ddprun doctor or of its probe: 0
// if all hosts passed, otherwise 1. program is this executable. Throws Errc::usage and Errc::io.
std::optional<int> run_doctor(const std::vector<std::string>& arguments, const Environment& environment,
                              const std::string& program);

}  // namespace ddprun::doctor
