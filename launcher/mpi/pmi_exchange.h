#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/mpi/pmi_state.h"
#include "rendezvous/round.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// Exchanges the pairs that a node's ranks have put with those of the other nodes of a round, once for each barrier,
// through the workers' store.
//
// Ownership: borrows the loop; owns a thread, since the store's client blocks. The destructor ends an exchange in
// progress. Threads: single-threaded on the loop, on which the handler runs. Errors: reported through the handler,
// except the loss of the store, which the rendezvous reports to the agent.
class PmiExchange {
 public:
  // error is the reason why the pairs did not arrive, empty if they did. Not called in the destructor or later.
  using Handler = std::function<void(const PmiPairs& pairs, const std::string& error)>;

  PmiExchange(boost::asio::io_context& loop, const Round& round, Handler on_done);
  ~PmiExchange();
  PmiExchange(const PmiExchange&) = delete;
  PmiExchange& operator=(const PmiExchange&) = delete;

  // Waits for as long as another node's ranks do not enter the barrier.
  void exchange(const PmiPairs& pairs);
  // This node's ranks have ended: reports this to nodes whose ranks wait for them.
  void leave();

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace ddprun
