#include "worker/comm/backends/shm/shm_transfers.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "common/error.h"
#include "worker/comm/backends/shm/peer_copy.h"

namespace ddprun::comm {
namespace {

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

// Throws where a sender may have freed memory that was read before: it does so once its group has broken, and none
// leaves the group before its message is received.
void expect_memory_kept(const WaitLimits& limits) {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (limits.interrupted) throw std::runtime_error("interrupted");
  if (limits.peer.load(std::memory_order_acquire) != PeerState::present)
    throw std::runtime_error("the sender left the group or broke it");
}

// Calls move(first byte, size) for each chunk of a buffer.
template <class Move>
void for_each_chunk(Span memory, Move move) {
  for (std::size_t done = 0; done < memory.bytes(); done += Channel::chunk_bytes) {
    move(static_cast<std::byte*>(memory.data) + done, std::min(Channel::chunk_bytes, memory.bytes() - done));
  }
}

}  // namespace

class ShmTransfers::SendTransfer : public Transfer {
 public:
  SendTransfer(ShmTransfers& owner, const Operation& operation, Span memory, std::uint64_t number)
      : owner_(owner),
        operation_(operation),
        memory_(memory),
        number_(number),
        channel_(owner.layout_.channel(owner.rank_, operation.peer)) {}

  void wait(std::chrono::milliseconds timeout) override {
    const Exchange exchange(owner_);
    const auto limits = owner_.limits(operation_.peer, Deadline::in(timeout), awaited());
    const auto region =
        memory_.bytes() > Channel::chunk_bytes ? owner_.own_regions_.handle_of(memory_) : RegionHandle{};
    auto& offer = post(region, limits);
    if (memory_.bytes() == 0)
      return;  // no data to copy; the receiver may free the offer before this rank sees it accepted
    if (region.reachable()) return await_end(offer, limits);
    await_acceptance(offer, limits);
    send_chunks(limits);
  }
  int source() const override { return owner_.rank_; }

 private:
  Offer& post(const RegionHandle& region, const WaitLimits& limits) {
    const std::lock_guard lock(owner_.send_locks_[index(operation_.peer)]);
    while (true) {
      const auto freed = channel_.freed.value();
      for (auto& offer : channel_.offers) {
        if (offer.state.load(std::memory_order_acquire) != Offer::free) continue;
        offer.dtype = static_cast<std::uint32_t>(operation_.dtype);
        offer.count = operation_.count;
        offer.tag = operation_.tag;
        offer.number = number_;
        offer.region = region;
        offer.state.store(Offer::posted, std::memory_order_release);
        channel_.posted.increment();
        owner_.layout_.rank(operation_.peer).incoming_offers.increment_shared();
        return offer;
      }
      channel_.freed.wait(freed + 1, limits);
    }
  }

  // Waits until the receiver has freed the offer, which another send of this rank may have taken since.
  void await_end(const Offer& offer, const WaitLimits& limits) {
    while (true) {
      const auto freed = channel_.freed.value();
      {
        const std::lock_guard lock(owner_.send_locks_[index(operation_.peer)]);
        const bool is_free = offer.state.load(std::memory_order_acquire) == Offer::free;
        if (is_free || offer.tag != operation_.tag || offer.number != number_) return;
      }
      channel_.freed.wait(freed + 1, limits);
    }
  }

  void await_acceptance(const Offer& offer, const WaitLimits& limits) {
    while (true) {
      const auto accepted = channel_.accepted.value();
      if (offer.state.load(std::memory_order_acquire) == Offer::accepted) return;
      channel_.accepted.wait(accepted + 1, limits);
    }
  }

  // The receiver accepts no other send of this channel meanwhile.
  void send_chunks(const WaitLimits& limits) {
    for_each_chunk(memory_, [&](const std::byte* bytes, std::size_t size) {
      const auto chunk = channel_.produced.value();
      channel_.consumed.wait(chunk + 1 - Channel::buffers, limits);
      std::memcpy(owner_.layout_.channel_buffer(owner_.rank_, operation_.peer, chunk), bytes, size);
      channel_.produced.increment();
    });
  }

  ShmTransfers& owner_;
  const Operation operation_;
  const Span memory_;
  const std::uint64_t number_;
  Channel& channel_;
};

class ShmTransfers::ReceiveTransfer : public Transfer {
 public:
  // number: the message's; none for a receive from any source.
  ReceiveTransfer(ShmTransfers& owner, const Operation& operation, Span memory, std::optional<std::uint64_t> number)
      : owner_(owner), operation_(operation), memory_(memory), number_(number), source_(operation.peer) {}

  void wait(std::chrono::milliseconds timeout) override {
    const Exchange exchange(owner_);
    const auto deadline = Deadline::in(timeout);
    if (!number_) await_any_source(deadline);
    const auto limits = owner_.limits(source_, deadline, awaited());
    auto& posted = owner_.layout_.channel(source_, owner_.rank_).posted;
    while (true) {
      const auto seen = posted.value();
      if (try_receive(limits)) return;
      posted.wait(seen + 1, limits);
    }
  }
  int source() const override { return source_; }

 private:
  // Returns false if the message has not been sent yet.
  bool try_receive(const WaitLimits& limits) {
    const std::lock_guard lock(owner_.receive_locks_[index(source_)]);
    if (auto* const offer = owner_.find_offer(source_, operation_.tag, *number_)) {
      check_match(static_cast<DType>(offer->dtype), offer->count);
      owner_.accept(source_, *offer, memory_.data, limits);
      return true;
    }
    if (const auto message = owner_.take_unexpected({source_, operation_.tag, *number_})) {
      check_match(message->dtype, message->count);
      if (message->count > 0) std::memcpy(memory_.data, message->bytes.data(), message->bytes.size());
      return true;
    }
    owner_.free_offer_if_full(source_, limits);
    return false;
  }

  // Waits for the first message of this tag, and claims it.
  void await_any_source(Deadline deadline) {
    auto& incoming = owner_.layout_.rank(owner_.rank_).incoming_offers;
    while (true) {
      const auto seen = incoming.value();
      const bool peers_remain = any_peer_present();  // read first: what a peer sent before it left counts
      if (claim_from_any_source(deadline)) return;
      if (!peers_remain) throw std::runtime_error("all peers left the group");
      if (deadline.expired()) throw std::runtime_error("timed out");
      incoming.wait_briefly(seen + 1, owner_.spin_policy_, {owner_.messages_, awaited()});
    }
  }

  bool any_peer_present() const {
    if (owner_.interrupted_) throw std::runtime_error("interrupted");
    bool present = false;
    for (int r = 0; r < owner_.layout_.ranks(); ++r) {
      const auto state = owner_.layout_.rank(r).peer_state.load(std::memory_order_acquire);
      if (state == PeerState::broken) throw std::runtime_error("a peer broke the group");
      present = present || (r != owner_.rank_ && state == PeerState::present);
    }
    return present;
  }

  // Claims the next message of this tag from the first rank that has sent it.
  bool claim_from_any_source(Deadline deadline) {
    for (int r = 0; r < owner_.layout_.ranks(); ++r) {
      if (r == owner_.rank_) continue;
      const std::lock_guard lock(owner_.receive_locks_[index(r)]);
      if (const auto number = owner_.claim_next_message(r, operation_.tag)) {
        source_ = r;
        number_ = number;
        return true;
      }
      owner_.free_offer_if_full(r, owner_.limits(r, deadline, awaited()));
    }
    return false;
  }

  void check_match(DType dtype, std::size_t count) const {
    if (dtype == operation_.dtype && count == operation_.count) return;
    const Operation sent{
        .kind = OpKind::send, .dtype = dtype, .count = count, .peer = owner_.rank_, .tag = operation_.tag};
    throw make_error(Errc::mismatch, "rank {} calls {}, rank {} calls {}", source_, describe(sent), owner_.rank_,
                     describe(operation_));
  }

  ShmTransfers& owner_;
  const Operation operation_;
  const Span memory_;
  std::optional<std::uint64_t> number_;
  int source_;
};

Offer* ShmTransfers::find_offer(int source, std::int64_t tag, std::uint64_t number) const {
  for (auto& offer : layout_.channel(source, rank_).offers) {
    if (offer.state.load(std::memory_order_acquire) != Offer::posted) continue;
    if (offer.tag == tag && offer.number == number) return &offer;
  }
  return nullptr;
}

void ShmTransfers::accept(int source, Offer& offer, void* memory, const WaitLimits& limits) {
  auto& channel = layout_.channel(source, rank_);
  const Span whole{memory, offer.count, static_cast<DType>(offer.dtype)};
  offer.state.store(Offer::accepted, std::memory_order_release);
  if (offer.region.reachable())
    copy_region(source, offer.region, whole, limits);
  else
    receive_chunks(source, whole, limits);
  offer.state.store(Offer::free, std::memory_order_release);
  channel.freed.increment();
}

void ShmTransfers::receive_chunks(int source, Span memory, const WaitLimits& limits) {
  auto& channel = layout_.channel(source, rank_);
  channel.accepted.increment();
  for_each_chunk(memory, [&](std::byte* bytes, std::size_t size) {
    const auto chunk = channel.consumed.value();
    channel.produced.wait(chunk + 1, limits);
    std::memcpy(bytes, layout_.channel_buffer(source, rank_, chunk), size);
    channel.consumed.increment();
  });
}

const std::byte* ShmTransfers::map_region(int source, const RegionHandle& region) try {
  return peer_regions_[index(source)].map(source, region);
} catch (const Error& error) {
  throw make_error(error.code(), "cannot read the memory of rank {}: {}", source, error.what());
}

void ShmTransfers::copy_region(int source, const RegionHandle& region, Span memory, const WaitLimits& limits) {
  if (memory.bytes() > region.segment_bytes || region.offset > region.segment_bytes - memory.bytes())
    throw make_error(Errc::protocol, "rank {} sends {} bytes from beyond its memory", source, memory.bytes());
  copy_from_peer(memory.data, map_region(source, region), memory.bytes(), memory.bytes());
  expect_memory_kept(limits);
}

// Takes the smallest message out of a full channel: the awaited one may be waiting for a free offer.
void ShmTransfers::free_offer_if_full(int source, const WaitLimits& limits) {
  auto& offers = layout_.channel(source, rank_).offers;
  const auto bytes = [](const Offer& offer) { return offer.count * size_of(static_cast<DType>(offer.dtype)); };
  Offer* smallest = nullptr;
  for (auto& offer : offers) {
    if (offer.state.load(std::memory_order_acquire) != Offer::posted) return;
    if (!smallest || bytes(offer) < bytes(*smallest)) smallest = &offer;
  }
  UnexpectedMessage message{static_cast<DType>(smallest->dtype), smallest->count,
                            std::vector<std::byte>(bytes(*smallest))};
  const MessageId id{source, smallest->tag, smallest->number};
  accept(source, *smallest, message.bytes.data(), limits);
  const std::lock_guard lock(mutex_);
  unexpected_.emplace(id, std::move(message));
}

std::optional<ShmTransfers::UnexpectedMessage> ShmTransfers::take_unexpected(const MessageId& id) {
  const std::lock_guard lock(mutex_);
  auto node = unexpected_.extract(id);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

std::optional<std::uint64_t> ShmTransfers::claim_next_message(int source, std::int64_t tag) {
  const std::lock_guard lock(mutex_);
  auto& next = receives_[{source, tag}];
  if (!find_offer(source, tag, next) && !unexpected_.contains({source, tag, next})) return std::nullopt;
  return next++;
}

ShmTransfers::ShmTransfers(const SegmentLayout& layout, int rank, const OwnRegions& regions,
                           const std::atomic<bool>& interrupted)
    : layout_(layout),
      rank_(rank),
      own_regions_(regions),
      interrupted_(interrupted),
      spin_policy_(layout.spin_policy()),
      send_locks_(index(layout.ranks())),
      receive_locks_(index(layout.ranks())) {
  for (int source = 0; source < layout.ranks(); ++source) peer_regions_.emplace_back(layout.ranks());
}

std::unique_ptr<Transfer> ShmTransfers::start(const Operation& operation, Span memory) {
  const bool sending = operation.kind == OpKind::send;
  if (!sending && operation.peer == any_source) {
    return std::make_unique<ReceiveTransfer>(*this, operation, memory, std::nullopt);
  }
  const std::lock_guard lock(mutex_);
  const auto number = (sending ? sends_ : receives_)[{operation.peer, operation.tag}]++;
  if (sending) return std::make_unique<SendTransfer>(*this, operation, memory, number);
  return std::make_unique<ReceiveTransfer>(*this, operation, memory, number);
}

void ShmTransfers::wake() noexcept {
  for (int r = 0; r < layout_.ranks(); ++r) {
    if (r == rank_) continue;
    for (auto* channel : {&layout_.channel(rank_, r), &layout_.channel(r, rank_)}) {
      for (auto* counter :
           {&channel->posted, &channel->produced, &channel->accepted, &channel->consumed, &channel->freed}) {
        counter->wake();
      }
    }
    layout_.rank(r).incoming_offers.wake();
  }
  layout_.rank(rank_).incoming_offers.wake();
}

}  // namespace ddprun::comm
