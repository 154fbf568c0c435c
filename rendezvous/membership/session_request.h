#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "rendezvous/membership/job_status.h"
#include "rendezvous/trust/credentials.h"

// Requests of tools to a rendezvous server (ddprun status, ddprun stop). It answers a client that proves that it knows
// the token, and a plain one that the server admits (Admission). Both functions block until the answer, the deadline or
// a stop request; they may be called on any thread. Errors, which name the server: Errc::unreachable, Errc::timeout and
// Errc::connection_lost where it does not answer, Errc::protocol where it does not answer as such a server or does not
// prove that it knows the token, and Errc::usage with its message where it refuses.
namespace ddprun {

struct ServerAddress {
  std::string host;
  std::uint16_t port = 29400;
  std::shared_ptr<const Credentials> credentials = nullptr;  // null: sends no token, clear text
  std::stop_token stop{};  // ends a request, with Errc::unreachable or connection_lost
};

// The server of an endpoint as typed: it is on this host if no host is given, at the usual port if no port is given.
ServerAddress server_at(const std::string& endpoint, std::shared_ptr<const Credentials> credentials = nullptr);

// Asks for the job of this run id, or for all jobs of the server if it is empty.
std::vector<JobStatus> ask_for_status(const ServerAddress& server, const std::string& run_id, Deadline deadline);

// Stops the job of this run id, or the server's only job if it is empty. Returns the job's status when its agents have
// been notified; they may still be running. `who` appears in the job result.
std::optional<JobStatus> ask_to_stop(const ServerAddress& server, const std::string& run_id, const std::string& who,
                                     Deadline deadline);

}  // namespace ddprun
