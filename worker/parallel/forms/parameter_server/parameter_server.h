#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/nn/module.h"
#include "worker/parallel/sharding/sharded_buckets.h"

namespace ddprun {

struct ParameterServerOptions {
  int servers = 1;              // ranks 0 to servers - 1; the others are workers
  std::int64_t staleness = 16;  // the greatest age, in updates, of the parameters of a gradient that is applied
};

// Asynchronous training with servers of parameters (Li et al., Scaling Distributed Machine Learning with the Parameter
// Server, 2014) and bounded staleness: each server has a range of the parameters and the optimizer's state of it.
// Workers fetch the parameters, compute a gradient and send each server its part; nobody waits for a slow worker,
// unless the bound requires it. If the workers' times differ, so does the order of updates: two runs differ.
//
//   ParameterServer server(model, group, {.servers = 1});
//   auto optimizer = make_optimizer("sgd", {}, ParameterShards(server.sharded_buckets()).parameters());
//   server.round(100, compute, update);   // 100 updates; then all ranks have the same parameters
//
// compute(ticket), at workers: forward and backward pass for update number `ticket` of the round; each ticket goes to
// one worker; gradients are zero before. update(), at servers: an optimizer step on the parts.
//
// The constructor gives all ranks rank 0's parameters and buffers. After a round buffers are those of the first worker.
//
// Ownership: model and group outlive this object, and this object the users of its groups.
// Threads: one at a time. Constructor and round() are collective.
// Errors: the constructor throws Errc::usage for numbers that leave no server or no worker, and Errc::unsupported for
//   parameters of several types; round() throws what compute and update throw, and the errors of the group.
class ParameterServer {
 public:
  ParameterServer(nn::Module& model, ProcessGroup& group, const ParameterServerOptions& options);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  bool is_server() const;
  // The range that this server updates; empty at a worker.
  const ShardedBuckets& sharded_buckets() const;
  // The group of the servers, or that of the workers.
  ProcessGroup& peers() const;

  void round(std::int64_t updates, const std::function<void(std::int64_t ticket)>& compute,
             const std::function<void()>& update);

  // Copies rank 0's parameters and buffers to all ranks. Collective.
  void distribute_model();
  // Returns how many of this server's updates were of gradients of each age, in updates. Empty at workers.
  const std::vector<std::int64_t>& staleness() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddprun
