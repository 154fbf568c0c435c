#pragma once

#include <string>

#include "common/environment.h"

// ddprun --doctor_probe: the process that ddprun doctor starts on each host. It communicates over standard input and
// output, a message a line:
//   it reads   "token TEXT"                                  the token with which connections between probes begin
//   it prints  "ddprun-doctor facts PORT JSON"               then; PORT serves tests of links
//   it reads   "test ID ADDRESS PORT"                        and tests the connection to another host's probe
//   it prints  "ddprun-doctor ID link RTT SENT RECEIVED AHEAD"  (ns, bytes/s, bytes/s, ns), or
//              "ddprun-doctor ID error TEXT"
// It ends at the end of its input.
namespace ddprun::doctor {

inline constexpr std::string_view probe_option = "--doctor_probe";
inline constexpr std::string_view message_prefix = "ddprun-doctor ";

// Returns the exit code. Throws Errc::protocol when its input does not begin with a token.
int run_probe(const Environment& environment);

}  // namespace ddprun::doctor
