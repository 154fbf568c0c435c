#include "ddprun/worker/comm/backends/shm/shm_transfers.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "ddprun/common/error.h"

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
    const auto limits = owner_.limits(operation_.peer, Deadline::in(timeout));
    auto& offer = post(limits);
    if (memory_.bytes() == 0) return;  // the receiver may have freed it before anybody sees it accepted
    await_acceptance(offer, limits);
    copy_out(limits);
  }
  int source() const override { return owner_.rank_; }

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
        owner_.board_.rank(operation_.peer).mail.raise_as_one_of_many();
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
  // No ticket: from any source.
  Receiving(ShmTransfers& owner, const Operation& operation, Span memory, std::optional<std::uint64_t> ticket)
      : owner_(owner), operation_(operation), memory_(memory), ticket_(ticket), source_(operation.peer) {}

  void wait(std::chrono::milliseconds timeout) override {
    const auto deadline = Deadline::in(timeout);
    if (!ticket_) await_any(deadline);
    const auto limits = owner_.limits(source_, deadline);
    auto& posted = owner_.board_.channel(source_, owner_.rank_).posted;
    while (true) {
      const auto seen = posted.value();
      if (take(limits)) return;
      posted.await(seen + 1, limits);
    }
  }
  int source() const override { return source_; }

 private:
  // Whether it was there.
  bool take(const WaitLimits& limits) {
    const std::lock_guard lock(owner_.receiving_[index(source_)]);
    if (auto* const offer = owner_.find_offer(source_, operation_.tag, *ticket_)) {
      check_match(static_cast<DType>(offer->dtype), offer->count);
      owner_.accept(source_, *offer, memory_.data, limits);
      return true;
    }
    if (const auto early = owner_.take_early({source_, operation_.tag, *ticket_})) {
      check_match(early->dtype, early->count);
      if (early->count > 0) std::memcpy(memory_.data, early->bytes.data(), early->bytes.size());
      return true;
    }
    owner_.make_room(source_, limits);
    return false;
  }

  // Finds the source, and takes the turn.
  void await_any(Deadline deadline) {
    auto& mail = owner_.board_.rank(owner_.rank_).mail;
    while (true) {
      const auto seen = mail.value();
      const bool hope = somebody_is_here();  // asked before: what was sent before leaving counts
      if (take_any_turn(deadline)) return;
      if (!hope) throw std::runtime_error("all peers left the group");
      if (deadline.expired()) throw std::runtime_error("timed out");
      mail.rest(seen + 1, owner_.patience_);
    }
  }

  bool somebody_is_here() const {
    if (owner_.interrupted_) throw std::runtime_error("interrupted");
    bool here = false;
    for (int r = 0; r < owner_.board_.ranks(); ++r) {
      const auto presence = owner_.board_.rank(r).presence.load(std::memory_order_acquire);
      if (presence == PeerState::broken) throw std::runtime_error("a peer broke the group");
      here = here || (r != owner_.rank_ && presence == PeerState::here);
    }
    return here;
  }

  // Of the first rank whose next message of this tag is there.
  bool take_any_turn(Deadline deadline) {
    for (int r = 0; r < owner_.board_.ranks(); ++r) {
      if (r == owner_.rank_) continue;
      const std::lock_guard lock(owner_.receiving_[index(r)]);
      if (const auto ticket = owner_.next_if_there(r, operation_.tag)) {
        source_ = r;
        ticket_ = ticket;
        return true;
      }
      owner_.make_room(r, owner_.limits(r, deadline));
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
  std::optional<std::uint64_t> ticket_;
  int source_;
};

// What follows, with the lock of the source: an offer that is posted stays so until it is accepted here.

Offer* ShmTransfers::find_offer(int source, std::int64_t tag, std::uint64_t ticket) const {
  for (auto& offer : board_.channel(source, rank_).offers) {
    if (offer.state.load(std::memory_order_acquire) != Offer::posted) continue;
    if (offer.tag == tag && offer.ticket == ticket) return &offer;
  }
  return nullptr;
}

void ShmTransfers::accept(int source, Offer& offer, void* memory, const WaitLimits& limits) {
  auto& channel = board_.channel(source, rank_);
  offer.state.store(Offer::accepted, std::memory_order_release);
  channel.accepted.raise();
  for_each_piece({memory, offer.count, static_cast<DType>(offer.dtype)}, [&](std::byte* bytes, std::size_t size) {
    const auto number = channel.consumed.value();
    channel.produced.await(number + 1, limits);
    std::memcpy(bytes, board_.staging(source, rank_, number), size);
    channel.consumed.raise();
  });
  offer.state.store(Offer::free, std::memory_order_release);
  channel.freed.raise();
}

// The smallest, out of a channel that is full of messages whose receives have not come: what is waited for may be
// behind them.
void ShmTransfers::make_room(int source, const WaitLimits& limits) {
  auto& offers = board_.channel(source, rank_).offers;
  const auto bytes = [](const Offer& offer) { return offer.count * size_of(static_cast<DType>(offer.dtype)); };
  Offer* smallest = nullptr;
  for (auto& offer : offers) {
    if (offer.state.load(std::memory_order_acquire) != Offer::posted) return;
    if (!smallest || bytes(offer) < bytes(*smallest)) smallest = &offer;
  }
  EarlyMessage early{static_cast<DType>(smallest->dtype), smallest->count, std::vector<std::byte>(bytes(*smallest))};
  const MessageName name{source, smallest->tag, smallest->ticket};
  accept(source, *smallest, early.bytes.data(), limits);
  const std::lock_guard lock(mutex_);
  early_.emplace(name, std::move(early));
}

std::optional<ShmTransfers::EarlyMessage> ShmTransfers::take_early(const MessageName& name) {
  const std::lock_guard lock(mutex_);
  auto node = early_.extract(name);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

std::optional<std::uint64_t> ShmTransfers::next_if_there(int source, std::int64_t tag) {
  const std::lock_guard lock(mutex_);
  auto& next = receives_[{source, tag}];
  if (!find_offer(source, tag, next) && !early_.contains({source, tag, next})) return std::nullopt;
  return next++;
}

ShmTransfers::ShmTransfers(const SegmentLayout& board, int rank, const std::atomic<bool>& interrupted)
    : board_(board),
      rank_(rank),
      interrupted_(interrupted),
      patience_(board.patience()),
      offering_(index(board.ranks())),
      receiving_(index(board.ranks())) {}

std::unique_ptr<Transfer> ShmTransfers::start(const Operation& operation, Span memory) {
  const bool sending = operation.kind == OpKind::send;
  if (!sending && operation.peer == any_source) {
    return std::make_unique<Receiving>(*this, operation, memory, std::nullopt);
  }
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
    board_.rank(r).mail.wake();
  }
  board_.rank(rank_).mail.wake();
}

}  // namespace ddprun::comm
