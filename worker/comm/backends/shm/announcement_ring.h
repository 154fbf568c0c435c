#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/deadline.h"
#include "worker/comm/backends/shm/processor_sharing.h"
#include "worker/comm/backends/shm/segment_layout.h"

namespace ddprun::comm {

// The start of every collective over a SegmentLayout: each rank announces its call in an entry of its ring, with a
// payload for its peers, in one cache line pair where that fits. A collective on little data is one round, which is one
// exchange of cache lines.
//
// A rank has consumed a round once it has read what it needs of it: the announcements of all ranks, of one, or of none.
// It retires a round, then or later, once it has seen the announcements of all ranks and checked that they call the
// same operation.
//
// A rank may announce some rounds before it retires the older ones. Each announcement tells how many rounds its rank
// has retired; an entry is reused only after all ranks are known to have retired the round that used it before. The
// limit is such that the round after the retired ones can always be announced: see can_announce().
//
// One thread at a time uses it. Waiting throws std::runtime_error when interrupted, past the timeout, or when another
// rank calls something else (CallsDiffer).
class AnnouncementRing {
 public:
  AnnouncementRing(const SegmentLayout& layout, int rank, const std::atomic<bool>& interrupted,
                   ProcessorSharing& sharing);

  // Returns whether another round can be announced now, which is true whenever all announced rounds are retired.
  // The reason why round f, the one after the retired rounds, always has a free entry: a rank that announced round
  // f - 1 had then retired more than f - 1 - ring_entries rounds, by the first condition; this rank saw that
  // announcement, so retired_by_all_ is at least that.
  bool can_announce() const {
    return announced_ - retired_ <= ring_entries - 2 && announced_ < retired_by_all_ + ring_entries;
  }
  // Does the same, but returns false where older rounds should be retired first.
  bool can_announce_at_once() const { return announced_ - retired_ < max_unretired && can_announce(); }
  // Retires what it can and waits until can_announce(). REQUIRES: this rank has consumed all that it announced.
  void await_free_entry(std::chrono::milliseconds timeout);
  // The place for this rank's payload of the next round; at most SegmentLayout::max_payload_bytes.
  std::byte* payload(std::size_t bytes) { return payload_of(rank_, announced_, bytes); }
  // A call's identification, the same at all ranks.
  struct Call {
    std::uint64_t sequence, fingerprint;
  };
  // REQUIRES: can_announce().
  void announce(const Call& call, PayloadKind kind);

  // All of the following is about the current round: the oldest that this rank has not consumed.
  static constexpr int all_ranks = -1;
  // Waits until that rank, or all ranks, have announced it. Returns false when the deadline passes first.
  bool try_await(int from, const Deadline& deadline);
  void await(int from, std::chrono::milliseconds timeout);
  // Throws when the group is broken; it serves callers that wait for no rank.
  void check_group() const;
  // The payload of rank r, which has that many bytes. REQUIRES: r has announced the round.
  const std::byte* payload_from(int r, std::size_t bytes) const { return payload_of(r, consumed_, bytes); }
  PayloadKind payload_kind(int r) const { return entry(r, consumed_).payload_kind; }
  // Returns that of all ranks; none where they differ. REQUIRES: all have announced the round.
  PayloadKind common_payload_kind() const;
  // Waits until all ranks have called it in this round. What a rank wrote before it is visible to all ranks after it.
  void barrier(std::chrono::milliseconds timeout);
  // Ends this rank's use of the round. Throws what waiting throws when an older round shows that the calls differ.
  void end_round();

  // Wakes all sleepers, so that they check whether they are interrupted.
  void wake() noexcept;

 private:
  // Rounds that may stay unretired before this rank checks them: a check reads a cache line of every rank.
  static constexpr std::uint64_t max_unretired = ring_entries / 2;

  // After that many further rounds, all ranks have most likely announced a round.
  static constexpr std::uint64_t settling_rounds = 2;

  // Another rank. Holds a pointer to its state, because the multiplication to find it would slow down every small
  // collective.
  struct Peer {
    int rank;
    RankState* state;
    Announcement& entry(std::uint64_t round) const { return state->announcements[round % ring_entries]; }
    bool announced(std::uint64_t round) const { return entry(round).announced.reached(times_used(round)); }
  };
  Announcement& entry(int r, std::uint64_t round) const { return layout_.rank(r).announcements[round % ring_entries]; }
  std::byte* payload_of(int r, std::uint64_t round, std::size_t bytes) const {
    return bytes <= Announcement::embedded_bytes ? entry(r, round).payload : layout_.payload(r, round);
  }
  static std::uint32_t times_used(std::uint64_t round) { return static_cast<std::uint32_t>(round / ring_entries + 1); }
  bool announced_by(int from, std::uint64_t round) const;
  // Calls visit(peer) for that rank, or for all others, until it returns false. Returns whether it never did.
  template <class Visit>
  bool for_each(int from, Visit visit) const;
  bool await_round(std::uint64_t round, int from, const Deadline& deadline) const;
  void accept(int from);
  WaitingRanks ranks(const Peer& peer) const { return {sharing_, peer.state->processor}; }
  WaitLimits limits(const Peer& peer, const Deadline& deadline) const {
    return {interrupted_, peer.state->peer_state, ranks(peer), spin_policy_, deadline};
  }
  void check_calls(std::uint64_t round, int from) const;
  [[noreturn]] void throw_broken() const;
  [[noreturn]] void throw_differs(std::uint64_t round, int rank) const;
  // Retires, of the rounds before that one, all that all ranks have announced.
  void retire_announced(std::uint64_t before);
  // Retires one at most, since this rank has just consumed that round.
  void retire_one(std::uint64_t consumed);
  void retire_oldest();

  const SegmentLayout& layout_;
  const int rank_;
  const std::atomic<bool>& interrupted_;
  const SpinPolicy spin_policy_;
  ProcessorSharing& sharing_;
  Announcement* const own_entries_;
  std::array<std::uint64_t, ring_entries> sequences_{};  // those of the collectives that this rank announced there
  std::vector<Peer> peers_;
  std::uint64_t announced_ = 0, consumed_ = 0, retired_ = 0;  // rounds, by this rank: announced >= consumed >= retired
  std::uint64_t retired_by_all_ = 0;                          // rounds that every rank is known to have retired
  std::uint32_t barriers_ = 0;
  bool current_complete_ = false;  // all ranks have announced the current round, with the same call
};

// All of these are inline, as every small collective calls them.

template <class Visit>
bool AnnouncementRing::for_each(int from, Visit visit) const {
  if (from != all_ranks) return from == rank_ || visit(Peer{from, &layout_.rank(from)});
  for (const auto& peer : peers_)
    if (!visit(peer)) return false;
  return true;
}

inline void AnnouncementRing::check_group() const {
  const bool whole = for_each(all_ranks, [](const Peer& peer) {
    return peer.state->peer_state.load(std::memory_order_relaxed) != PeerState::broken;
  });
  if (!whole || interrupted_.load(std::memory_order_relaxed)) throw_broken();
}

inline void AnnouncementRing::check_calls(std::uint64_t round, int from) const {
  const auto call = own_entries_[round % ring_entries].call;
  for_each(from, [&](const Peer& peer) {
    if (peer.entry(round).call != call) throw_differs(round, peer.rank);
    return true;
  });
}

inline PayloadKind AnnouncementRing::common_payload_kind() const {
  const auto own = own_entries_[consumed_ % ring_entries].payload_kind;
  const auto same = [&](const Peer& peer) { return peer.entry(consumed_).payload_kind == own; };
  return for_each(all_ranks, same) ? own : PayloadKind::none;
}

}  // namespace ddprun::comm
