#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/environment.h"
#include "launcher/cluster/discovery.h"
#include "launcher/cluster/rendezvous_choice.h"
#include "rendezvous/trust/admission.h"
#include "rendezvous/trust/credentials.h"
#include "rendezvous/trust/token_file.h"

namespace ddprun {

// The rules for clients of a job's store servers, as its agents see them.
struct JobTrust {
  std::shared_ptr<const Credentials> credentials;  // null: this agent has no token
  std::shared_ptr<const Admission> admission;      // null: the servers of this agent admit everyone
  std::shared_ptr<const Admission> workers;        // those for the store of its workers
  std::shared_ptr<TokenFile> file;                 // for the other nodes; removed with it, or once all have joined
  std::string notice;                              // one line: what is not authenticated, and why
};

// The source of a token: the ddprun that started this agent, a file that the user names, or a file of the Slurm job.
struct TokenSources {
  const SecretText* from_starter = nullptr;  // null: none
  std::optional<ClusterInfo> cluster;        // a Slurm job, if this agent is part of one
};

// A job of one node admits only the processes of its user; one of several nodes authenticates by its token. required is
// --require_auth. Waits at most a few seconds for the file of a Slurm job, which the agent of node rank 0 makes.
//
// Throws Errc::usage where settings contradict each other, for a token file that cannot be used, and, if it is
// required, with the reason why the job is not authenticated.
JobTrust choose_trust(const RendezvousChoice& choice, bool required, const Environment& environment,
                      const TokenSources& sources);

}  // namespace ddprun
