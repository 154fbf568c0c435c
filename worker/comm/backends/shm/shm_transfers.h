#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ddprun/worker/comm/backends/shm/segment_layout.h"
#include "ddprun/worker/comm/execution/transport.h"

namespace ddprun::comm {

// Sends and receives over a SegmentLayout's channels. A send posts an offer; the receive that it is for accepts it, and
// then the bytes move in pieces through the channel's staging memory. Thread-safe.
//
// At most Channel::offers_at_once sends from one rank to another wait for their receives; one more waits for a place. A
// receive that does not find its message among so many takes one of the others early, into memory of this rank's own.
class ShmTransfers {
 public:
  ShmTransfers(const SegmentLayout& board, int rank, const std::atomic<bool>& interrupted);

  // Takes the transfer's place in the order of its partner and tag. References this object.
  std::unique_ptr<Transfer> start(const Operation& operation, Span memory);
  void wake() noexcept;

 private:
  class Sending;
  class Receiving;

  WaitLimits limits(int peer, Deadline deadline) const {
    return {interrupted_, board_.rank(peer).presence, patience_, deadline};
  }

  // A message by its source, its tag and its place among those.
  using MessageName = std::tuple<int, std::int64_t, std::uint64_t>;
  struct EarlyMessage {
    DType dtype;
    std::size_t count;
    std::vector<std::byte> bytes;
  };
  Offer* find_offer(int source, std::int64_t tag, std::uint64_t ticket) const;
  void accept(int source, Offer& offer, void* memory, const WaitLimits& limits);
  void make_room(int source, const WaitLimits& limits);
  std::optional<EarlyMessage> take_early(const MessageName& name);
  std::optional<std::uint64_t> next_if_there(int source, std::int64_t tag);

  const SegmentLayout& board_;
  const int rank_;
  const std::atomic<bool>& interrupted_;
  const SpinPolicy patience_;

  std::mutex mutex_;  // guards what follows; the last to be locked
  std::map<std::pair<int, std::int64_t>, std::uint64_t> sends_, receives_;  // (partner, tag): how many so far
  std::map<MessageName, EarlyMessage> early_;
  std::vector<std::mutex> offering_;   // per destination: one thread at a time takes a free offer
  std::vector<std::mutex> receiving_;  // per source: one thread at a time looks at its offers and moves bytes
};

}  // namespace ddprun::comm
