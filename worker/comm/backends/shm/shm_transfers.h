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

#include "worker/comm/backends/shm/segment_layout.h"
#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// Sends and receives over the channels of a SegmentLayout. A send posts an offer; the matching receive accepts it, and
// then the data moves in chunks through the channel's buffers; unless it is large and lies in registered memory, which
// the receiver copies. References the layout and the regions; outlives its transfers. Thread-safe.
//
// At most Channel::max_offers sends from one rank to another wait for their receives; a further send waits for a free
// offer. A receive that does not find its message in a full channel takes one of the others out of it, into memory of
// this rank: MPI calls that an unexpected message.
class ShmTransfers {
 public:
  ShmTransfers(const SegmentLayout& layout, int rank, const OwnRegions& regions, const std::atomic<bool>& interrupted);

  // The order of calls is the order in which messages of one peer and tag are matched. The result references this
  // object and throws std::runtime_error when interrupted, when the peer left or broke the group, and past its timeout;
  // Errc::mismatch when sender and receiver differ in size or type.
  std::unique_ptr<Transfer> start(const Operation& operation, Span memory);
  // Wakes all sleepers, so that they check whether they are interrupted.
  void wake() noexcept;

 private:
  class SendTransfer;
  class ReceiveTransfer;

  // Counts a message that this rank exchanges.
  class Exchange {
   public:
    explicit Exchange(ShmTransfers& owner) : messages_(owner.messages_) { ++messages_; }
    ~Exchange() { --messages_; }
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    std::atomic<int>& messages_;
  };

  WaitLimits limits(int peer, Deadline deadline, const std::atomic<bool>* awaited) const {
    return {interrupted_, layout_.rank(peer).peer_state,  std::nullopt, spin_policy_,
            deadline,     MessageWait{messages_, awaited}};
  }

  // Source, tag and number of a message: see Offer.
  using MessageId = std::tuple<int, std::int64_t, std::uint64_t>;
  struct UnexpectedMessage {
    DType dtype;
    std::size_t count;
    std::vector<std::byte> bytes;
  };
  // These require the source's lock: a posted offer stays posted until it is accepted here.
  Offer* find_offer(int source, std::int64_t tag, std::uint64_t number) const;
  void accept(int source, Offer& offer, void* memory, const WaitLimits& limits);
  void receive_chunks(int source, Span memory, const WaitLimits& limits);
  const std::byte* map_region(int source, const RegionHandle& region);
  void copy_region(int source, const RegionHandle& region, Span memory, const WaitLimits& limits);
  void free_offer_if_full(int source, const WaitLimits& limits);
  std::optional<UnexpectedMessage> take_unexpected(const MessageId& id);
  std::optional<std::uint64_t> claim_next_message(int source, std::int64_t tag);

  const SegmentLayout& layout_;
  const int rank_;
  const OwnRegions& own_regions_;
  const std::atomic<bool>& interrupted_;
  const SpinPolicy spin_policy_;
  std::atomic<int> messages_ = 0;  // those that threads of this rank exchange now

  std::mutex mutex_;                                                        // guards the maps; locked after any other
  std::map<std::pair<int, std::int64_t>, std::uint64_t> sends_, receives_;  // (peer, tag): how many so far
  std::map<MessageId, UnexpectedMessage> unexpected_;
  std::vector<std::mutex> send_locks_;     // per destination: one thread at a time takes a free offer
  std::vector<std::mutex> receive_locks_;  // per source: one thread at a time looks at its offers and moves data
  std::vector<PeerRegions> peer_regions_;  // per source: its rank's, guarded by its receive lock
};

}  // namespace ddprun::comm
