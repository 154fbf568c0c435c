#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ddprun/worker/comm/shm/board.h"
#include "ddprun/worker/comm/transport/transport.h"

namespace ddprun::comm {

// Sends and receives over a Board's channels. A send posts an offer; the receive that it is for accepts it, and then
// the bytes move in pieces through the channel's staging memory. Thread-safe.
//
// At most Channel::offers_at_once sends from one rank to another wait for their receives; one more waits for a place.
class ShmTransfers {
 public:
  ShmTransfers(const Board& board, int rank, const std::atomic<bool>& interrupted);

  // Takes the transfer's place in the order of its partner and tag. References this object.
  std::unique_ptr<Transfer> start(const Operation& operation, Span memory);
  void wake() noexcept;

 private:
  class Sending;
  class Receiving;

  WaitLimits limits(int peer, Deadline deadline) const {
    return {interrupted_, board_.rank(peer).presence, patience_, deadline};
  }

  const Board& board_;
  const int rank_;
  const std::atomic<bool>& interrupted_;
  const Patience patience_;

  std::mutex mutex_;                                                        // guards the tickets
  std::map<std::pair<int, std::int64_t>, std::uint64_t> sends_, receives_;  // (partner, tag): how many so far
  std::vector<std::mutex> offering_;   // per destination: one thread at a time takes a free offer
  std::vector<std::mutex> receiving_;  // per source: one transfer at a time moves its bytes
};

}  // namespace ddprun::comm
