// ddprun-store-client plain [UID] | stay | group: a worker of trust_hosts_test. plain: uses the store as PyTorch does,
// without a token, and prints whether it was admitted; with UID as another user. stay: prints the store's address and
// waits for a signal. group: forms a process group as a C++ worker does.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <unistd.h>

#include "common/deadline.h"
#include "common/environment.h"
#include "common/error.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/tcp_socket.h"
#include "worker/comm/init.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

constexpr std::chrono::seconds patience{20};

void use_plainly(const WorkerEnv& env) {
  const auto deadline = Deadline::in(patience);
  const auto socket = connect_once(env.master_addr, env.master_port, deadline);
  const bool other = ::geteuid() != 0;
  try {
    send_all(socket.get(), encode(Request(ValidateRequest{})) + encode(Request(PingRequest{7})), deadline);
    char reply[4];
    receive_some(socket.get(), reply, sizeof reply, deadline);
    std::cout << (other ? "another user" : "the user") << " admitted" << std::endl;
  } catch (const Error&) {
    std::cout << (other ? "another user" : "the user") << " refused" << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto env = WorkerEnv::from(Environment::capture());
  if (argc > 2 && ::setuid(static_cast<uid_t>(std::atoi(argv[2]))) != 0) return 1;
  if (argc > 1 && std::string(argv[1]) == "plain") {
    use_plainly(env);
    return 0;
  }
  if (argc > 1 && std::string(argv[1]) == "stay") {
    std::cout << "store " << env.master_addr << ' ' << env.master_port << std::endl;
    ::pause();
    return 0;
  }
  const auto world = init_process_group({.backend = "gloo", .env = env});
  world->group().barrier()->wait();
  std::cout << "grouped" << std::endl;
  return 0;
}
