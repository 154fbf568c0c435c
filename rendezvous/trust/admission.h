#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <sys/types.h>
#include <unistd.h>

#include "rendezvous/trust/credentials.h"

namespace ddprun {

// The rule by which a store server admits clients: those that prove that they know the token, and plain clients whose
// sockets belong to one user, and perhaps to processes of one job, as the kernel of their host reports.
struct Admission {
  enum class Clients {
    of_user,  // any process of the user
    of_job,   // those that JobSockets knows here, or that an agent with the token confirms
  };
  std::shared_ptr<const Credentials> credentials;  // null: only plain clients of this host
  uid_t user = ::geteuid();
  bool admits_root = true;  // root can do anything on a host anyway
  Clients clients = Clients::of_user;
  // Limits of clients that are not admitted yet.
  std::chrono::milliseconds timeout{2'000};
  std::size_t max_pending = 64;  // further ones stay in the kernel's queue
  std::size_t max_held = 1024;   // plain clients about which agents are asked; beyond it the oldest is refused
  // While there are max_pending of them, the oldest is closed after this time.
  std::chrono::milliseconds crowded{500};
};

}  // namespace ddprun
