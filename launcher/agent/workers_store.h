#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/launcher/agent/agent.h"
#include "ddprun/launcher/agent/reserved_port.h"
#include "ddprun/launcher/agent/socket_confirmer.h"
#include "ddprun/launcher/agent/store_probe.h"
#include "ddprun/rendezvous/store/store_server.h"

namespace ddprun {

// This node's part in the store to which the workers of a round connect: group rank 0 serves it, or keeps a port free
// for worker 0, which does; the other nodes say to whom their sockets belong, and check that they reach it.
//
// Ownership: owns server, port and connections; borrows the loop and the specification, which must outlive it.
// Threads: single-threaded on the loop. Errors: provide() throws Errc::io.
class WorkersStore {
 public:
  WorkersStore(boost::asio::io_context& loop, const AgentSpec& spec) : loop_(loop), spec_(spec) {}

  // For the next round, in which this node is group rank 0 and others dial it at this address. Returns the port; 0
  // when the endpoint's own store serves the workers. The server listens only where workers connect. on_failure: as
  // StoreServer::on_accept_failure() calls it.
  std::uint16_t provide(const std::string& address, bool at_endpoint, std::chrono::milliseconds accept_bound,
                        std::function<void(const Error&)> on_failure);
  // Before the workers of a round dial it: the store of another agent asks this one whose their sockets are.
  void answer_for(const Round& round, bool at_endpoint);
  // Once the workers of a round run: warns if this node cannot reach their store.
  void probe(const Round& round, bool at_endpoint);

  // By local rank, whether a worker can recover, as it has announced in the store of this one-node job; empty: unknown.
  std::vector<bool> able(std::int64_t generation) const;
  // Tells the living workers, which wait for it, the members of the next generation.
  void announce(std::int64_t generation, const ReplaceWorkers& replacements);

  // How often clients of the server have asked for what; empty where another process serves the store.
  std::map<std::string, std::uint64_t> operations() const;

  void close_connections();  // those to stores elsewhere
  void close();              // the server; its clients lose their connections

 private:
  boost::asio::io_context& loop_;
  const AgentSpec& spec_;
  std::unique_ptr<StoreServer> server_;
  std::optional<ReservedPort> port_;            // instead, where worker 0 serves the store
  std::unique_ptr<StoreProbe> probe_;           // of a store elsewhere
  std::unique_ptr<SocketConfirmer> confirmer_;  // for a store on another host
};

}  // namespace ddprun
