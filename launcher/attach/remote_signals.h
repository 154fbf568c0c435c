#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "rendezvous/agent_relay.h"

namespace ddprun {

// Signals for ranks of other nodes that have been asked for and not answered yet. No I/O: messages leave by a function.
// Not thread-safe.
class RemoteSignals {
 public:
  static constexpr std::size_t max_pending = 64;

  // Returns why the message cannot be sent; empty if it was.
  using Send = std::function<std::string(const RelayMessage&)>;
  // Gets why the signal was not sent; empty if it was.
  using Reply = std::function<void(const std::string& problem)>;

  explicit RemoteSignals(Send send) : send_(std::move(send)) {}

  void ask(int rank, const RequestedSignal& signal, Reply reply);
  void answered(const SignalAnswer& answer);
  // A new session knows nothing of them.
  void session_began();

 private:
  Send send_;
  std::map<std::uint64_t, Reply> pending_;
  std::uint64_t last_number_ = 0;
};

}  // namespace ddprun
