#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_state.h"
#include "tests/simulation/network.h"

namespace ddprun::testing {

// The real StoreState and RequestParser behind simulated connections: the counterpart of StoreServer.
class WorkerStore final : public Listener, public std::enable_shared_from_this<WorkerStore> {
 public:
  explicit WorkerStore(ProcessPtr process) : process_(std::move(process)) {}

  ProcessPtr process() const override { return process_; }
  void accept(const ConnectionPtr& connection) override;
  // Closes its connections. Do not use it afterwards.
  void stop();

 private:
  struct Client {
    ConnectionPtr connection;
    rendezvous::RequestParser parser;
  };

  void receive(rendezvous::ConnectionId id, const std::string& bytes);
  void close(rendezvous::ConnectionId id);
  void deliver(const std::vector<rendezvous::Reply>& replies);

  const ProcessPtr process_;
  rendezvous::StoreState state_;
  std::map<rendezvous::ConnectionId, Client> clients_;
  rendezvous::ConnectionId next_id_ = 1;
};

}  // namespace ddprun::testing
