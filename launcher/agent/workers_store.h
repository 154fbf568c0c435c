#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/agent/agent.h"
#include "launcher/agent/reserved_port.h"
#include "launcher/agent/socket_confirmer.h"
#include "launcher/agent/store_probe.h"
#include "rendezvous/store/store_server.h"

namespace ddprun {

// This node's part in the store to which the workers of a round connect: group rank 0 serves it, or keeps a port free
// for worker 0, which does; the other nodes confirm to whom their sockets belong, and check that they reach it. Where a
// round goes on without its group rank 0, each of them has a store that is empty, in case it is the next one.
//
// Ownership: owns server, port and connections; borrows the loop and the specification, which must outlive it.
// Threads: single-threaded on the loop. Errors: provide() throws Errc::io.
class WorkersStore {
 public:
  // reported: called from the loop after a worker has reported something in the store here: that it can recover, that
  // it no longer can, or that others are lost.
  WorkersStore(boost::asio::io_context& loop, const AgentSpec& spec, std::function<void()> reported)
      : loop_(loop), spec_(spec), reported_(std::move(reported)) {}

  // Provides the store for the next round, in which this node is group rank 0, or may become it, and others dial it at
  // this address.
  // Returns the port; 0 when the endpoint's own store serves the workers. The server listens only where workers
  // connect. StoreServer::on_accept_failure() calls on_failure.
  std::uint16_t provide(const std::string& address, bool at_endpoint, std::chrono::milliseconds accept_bound,
                        std::function<void(const Error&)> on_failure);
  // Call before the workers of a round dial it: the store of another agent asks this one who owns their sockets.
  void answer_for(const Round& round, bool at_endpoint);
  // Returns whether this node serves the store of the round's workers.
  bool serves(const Round& round) const { return server_ && round.self == 0; }
  // A process of this user has connected to the agent's Unix socket for the store at this port; sent: what it has sent.
  // Closes the connection where this node serves no such store, or admits only processes of the job and it is none.
  void adopt(std::uint16_t port, UniqueFd connection, const std::string& sent);
  // Call once the workers of a round run: warns if this node cannot reach their store.
  void probe(const Round& round, bool at_endpoint);

  // This node has become group rank 0 of a round that runs, whose workers can recover unless they say otherwise.
  void take_over() { taken_over_ = true; }

  // Returns by rank whether a worker of the round can recover, as announced in its store; empty if another node serves
  // it. members: the names of the workers, by rank.
  std::vector<bool> able(const Round& round, const std::vector<std::string>& members) const;
  // Returns those of these members that have announced there that they have got the state from others.
  std::vector<std::string> got_state(const Round& round, std::vector<std::string> members) const;
  // Returns the ranks of those of these members, by rank, that others have reported there as lost although their
  // processes may still run, with what they saw. Each is returned once.
  std::vector<std::pair<int, std::string>> take_lost(const Round& round, const std::vector<std::string>& members);
  // Returns whether a worker of the round has announced there that it is done.
  bool is_over(const Round& round) const;
  // Where this node serves the store, announces the members of the next generation to the living workers, which wait
  // for it.
  void announce(const Round& round, const ReplaceWorkers& replacements);
  // Does the same for a round that has lost or gained nodes. If none was lost, the workers of the others go on until
  // all workers that join are ready, also those of earlier changes; otherwise they wait for them in the next
  // generation's group.
  void announce(const RoundChanged& change, const std::vector<std::string>& members, bool has_lost);
  // Announces to the living workers that no generation follows in this store: these, which are this node's, leave the
  // others after a step, and all others go on by the store of another node.
  void announce_leave(const Round& round, const std::vector<std::string>& leaving);
  // Announces to those that wait that no generation follows: the workers of the round are being stopped.
  void announce_end(const Round& round);

  // The number of requests by operation that clients sent to the server; empty where another process serves the store.
  std::map<std::string, std::uint64_t> operations() const;

  void close_connections();  // those to stores elsewhere
  void close();              // the server; its clients lose their connections

 private:
  void announce(const Round& round, std::uint64_t generation, const std::vector<std::string>& members);
  void announce_if_ready();
  // A generation that waits for the workers that join in it.
  struct Awaited {
    RoundChanged change;
    std::vector<std::string> members;
  };
  bool are_ready(const Round& round, const std::vector<std::string>& members) const;

  boost::asio::io_context& loop_;
  const AgentSpec& spec_;
  const std::function<void()> reported_;
  std::unique_ptr<StoreServer> server_;
  std::optional<ReservedPort> port_;            // set instead where worker 0 serves the store
  std::unique_ptr<StoreProbe> probe_;           // probes a store elsewhere
  std::unique_ptr<SocketConfirmer> confirmer_;  // for a store on another host
  std::uint64_t announced_ = 0;                 // the newest generation of the round's workers
  std::set<std::string> taken_lost_;            // members that take_lost() has returned
  bool taken_over_ = false;                     // the store is not the first one of the round
  std::optional<Awaited> awaited_;
};

}  // namespace ddprun
