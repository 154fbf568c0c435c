#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/forms/parameter_server/staleness_gate.h"

namespace ddprun::parameter_server {

// A server of a range of the parameters: gives them to workers, and applies their gradients one after the other, in the
// order that the gate admits.
//
// Ownership: group and the memory of the spans outlive the server. Threads: one at a time.
// Errors: those of the group.
class Server {
 public:
  // workers: their ranks in the group. values, gradient: those of this server's range, of one size and type.
  Server(ProcessGroup& group, std::vector<int> workers, Span values, Span gradient, std::int64_t bound);
  ~Server();  // waits for operations in progress
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until every worker has left. tickets: the number that this server gives out, or none if another server does.
  // update is called with a worker's gradient in place, and changes the values.
  void serve(std::optional<std::int64_t> tickets, const std::function<void()>& update);

  const StalenessGate& gate() const { return gate_; }

 private:
  struct Worker {
    int rank;
    std::int64_t ticket = 0;                // the one that its next parameters come with
    std::vector<std::byte> gradient, sent;  // received; under way
    std::vector<WorkPtr> sends;
  };
  void handle(std::size_t worker, std::int64_t request);
  void admit(const std::function<void()>& update);
  void send_parameters(Worker& worker);
  void send_ticket(Worker& worker, std::int64_t ticket);
  static void wait_for_sends(Worker& worker);

  ProcessGroup& group_;
  std::vector<Worker> workers_;
  const Span values_, gradient_;
  StalenessGate gate_;
  std::optional<std::int64_t> tickets_left_;
  std::int64_t next_ticket_ = 0;
  std::size_t gone_ = 0;  // workers that have left
};

}  // namespace ddprun::parameter_server
