#include "ddprun/worker/comm/shm/shm_transfers.h"

#include <algorithm>
#include <cstring>

namespace ddprun::comm {
namespace {

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

// Calls move(piece's first byte, its size) for each piece of a buffer.
template <class Move>
void for_each_piece(Span memory, Move move) {
  for (std::size_t done = 0; done < memory.bytes(); done += Channel::piece_bytes) {
    move(static_cast<std::byte*>(memory.data) + done, std::min(Channel::piece_bytes, memory.bytes() - done));
  }
}

}  // namespace

class ShmTransfers::Sending : public Transfer {
 public:
  Sending(ShmTransfers& owner, const Operation& operation, Span memory, std::uint64_t ticket)
      : owner_(owner),
        operation_(operation),
        memory_(memory),
        ticket_(ticket),
        channel_(owner.board_.channel(owner.rank_, operation.peer)) {}

  void wait(std::chrono::milliseconds timeout) override {
    const auto limits = owner_.limits(operation_.peer, timeout);
    auto& offer = post(limits);
    if (memory_.bytes() == 0) return;  // the receiver may have freed it before anybody sees it accepted
    await_acceptance(offer, limits);
    copy_out(limits);
  }

 private:
  Offer& post(const WaitLimits& limits) {
    const std::lock_guard lock(owner_.offering_[index(operation_.peer)]);
    while (true) {
      const auto freed = channel_.freed.value();
      for (auto& offer : channel_.offers) {
        if (offer.state.load(std::memory_order_acquire) != Offer::free) continue;
        offer.dtype = static_cast<std::uint32_t>(operation_.dtype);
        offer.count = operation_.count;
        offer.tag = operation_.tag;
        offer.ticket = ticket_;
        offer.state.store(Offer::posted, std::memory_order_release);
        channel_.posted.raise();
        return offer;
      }
      channel_.freed.await(freed + 1, limits);
    }
  }

  void await_acceptance(const Offer& offer, const WaitLimits& limits) {
    while (true) {
      const auto accepted = channel_.accepted.value();
      if (offer.state.load(std::memory_order_acquire) == Offer::accepted) return;
      channel_.accepted.await(accepted + 1, limits);
    }
  }

  // No other send of this channel is accepted meanwhile: the receiver sees to that.
  void copy_out(const WaitLimits& limits) {
    for_each_piece(memory_, [&](const std::byte* bytes, std::size_t size) {
      const auto number = channel_.produced.value();
      channel_.consumed.await(number + 1 - Channel::pieces_at_once, limits);
      std::memcpy(owner_.board_.staging(owner_.rank_, operation_.peer, number), bytes, size);
      channel_.produced.raise();
    });
  }

  ShmTransfers& owner_;
  const Operation operation_;
  const Span memory_;
  const std::uint64_t ticket_;
  Channel& channel_;
};

class ShmTransfers::Receiving : public Transfer {
 public:
  Receiving(ShmTransfers& owner, const Operation& operation, Span memory, std::uint64_t ticket)
      : owner_(owner),
        operation_(operation),
        memory_(memory),
        ticket_(ticket),
        channel_(owner.board_.channel(operation.peer, owner.rank_)) {}

  void wait(std::chrono::milliseconds timeout) override {
    const auto limits = owner_.limits(operation_.peer, timeout);
    auto& offer = await_offer(limits);
    const std::lock_guard lock(owner_.receiving_[index(operation_.peer)]);
    offer.state.store(Offer::accepted, std::memory_order_release);
    channel_.accepted.raise();
    copy_in(limits);
    offer.state.store(Offer::free, std::memory_order_release);
    channel_.freed.raise();
  }

 private:
  Offer& await_offer(const WaitLimits& limits) {
    while (true) {
      const auto posted = channel_.posted.value();
      for (auto& offer : channel_.offers) {
        if (matches(offer)) return offer;
      }
      channel_.posted.await(posted + 1, limits);
    }
  }

  bool matches(const Offer& offer) const {
    return offer.state.load(std::memory_order_acquire) == Offer::posted && offer.tag == operation_.tag &&
           offer.ticket == ticket_ && offer.dtype == static_cast<std::uint32_t>(operation_.dtype) &&
           offer.count == operation_.count;
  }

  void copy_in(const WaitLimits& limits) {
    for_each_piece(memory_, [&](std::byte* bytes, std::size_t size) {
      const auto number = channel_.consumed.value();
      channel_.produced.await(number + 1, limits);
      std::memcpy(bytes, owner_.board_.staging(operation_.peer, owner_.rank_, number), size);
      channel_.consumed.raise();
    });
  }

  ShmTransfers& owner_;
  const Operation operation_;
  const Span memory_;
  const std::uint64_t ticket_;
  Channel& channel_;
};

ShmTransfers::ShmTransfers(const Board& board, int rank, const std::atomic<bool>& interrupted)
    : board_(board),
      rank_(rank),
      interrupted_(interrupted),
      patience_(Patience::for_ranks(board.ranks())),
      offering_(index(board.ranks())),
      receiving_(index(board.ranks())) {}

std::unique_ptr<Transfer> ShmTransfers::start(const Operation& operation, Span memory) {
  const bool sending = operation.kind == OpKind::send;
  const std::lock_guard lock(mutex_);
  const auto ticket = (sending ? sends_ : receives_)[{operation.peer, operation.tag}]++;
  if (sending) return std::make_unique<Sending>(*this, operation, memory, ticket);
  return std::make_unique<Receiving>(*this, operation, memory, ticket);
}

void ShmTransfers::wake() noexcept {
  for (int r = 0; r < board_.ranks(); ++r) {
    if (r == rank_) continue;
    for (auto* channel : {&board_.channel(rank_, r), &board_.channel(r, rank_)}) {
      for (auto* word :
           {&channel->posted, &channel->produced, &channel->accepted, &channel->consumed, &channel->freed}) {
        word->wake();
      }
    }
  }
}

}  // namespace ddprun::comm
