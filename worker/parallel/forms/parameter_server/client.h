#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/comm/process_group.h"

namespace ddprun::parameter_server {

// The copy of a server's range in the memory of a worker.
struct ServerRange {
  int rank;  // that of the server
  Span values, gradient;
};

// A worker's side of the protocol: its requests to all servers.
//
// Ownership: group and the memory of the ranges outlive the client. Threads: one at a time. Errors: those of the group.
class Client {
 public:
  Client(ProcessGroup& group, std::vector<ServerRange> servers) : group_(group), servers_(std::move(servers)) {}
  ~Client();  // waits for operations in progress: they use the ranges
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Reads the parameters of all ranges. Returns the number of the update to compute, or none if the round ends. After
  // push(), the gradients are the caller's again.
  std::optional<std::int64_t> read();
  // Sends the gradients; they stay in use until read() returns.
  void push();

 private:
  ProcessGroup& group_;
  const std::vector<ServerRange> servers_;
  std::vector<WorkPtr> sends_;
};

}  // namespace ddprun::parameter_server
