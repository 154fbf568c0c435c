#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/membership/job_status.h"

// What anybody may ask a rendezvous server, agent or not. Both calls block, and throw Errc::unreachable, Errc::timeout,
// Errc::connection_lost or Errc::protocol naming the server, and Errc::usage with its own words when it refuses.
namespace ddprun {

struct ServerAddress {
  std::string host;
  std::uint16_t port = 29400;
};

// The jobs there, or the one of this run id.
std::vector<JobStatus> ask_for_status(const ServerAddress& server, const std::string& run_id, Deadline deadline);

// Ends the job of this run id (empty: the only one there), and says what it was. Returns when its agents have been
// told, not when they have ended.
JobStatus ask_to_stop(const ServerAddress& server, const std::string& run_id, const std::string& who,
                      Deadline deadline);

}  // namespace ddprun
