#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddprun/common/deadline.h"
#include "ddprun/worker/comm/backends/shm/segment_layout.h"

namespace ddprun::comm {

// How the ranks of a SegmentLayout come together for an operation: each announces what it calls, and gives along what
// the others need of it, in one cache line where that fits. So an operation on little memory is one round, with one
// exchange of cache lines.
//
// A rank is through with a round when it has taken what it needs of it: the announcements of all, or of one, or none.
// It finishes the round when it has seen all announcements, then or later, and that they call the same.
//
// A rank may announce some rounds ahead of those that it has finished. It says with each how many it has finished; a
// place is used again only when all ranks are known to have finished the round that used it before. How far ahead is
// limited such that the round after the finished ones can always be announced: see room().
//
// One thread at a time. Waiting throws std::runtime_error when interrupted, past the timeout, or when another rank
// calls something else (CallsDiffer).
class AnnouncementRing {
 public:
  AnnouncementRing(const SegmentLayout& board, int rank, const std::atomic<bool>& interrupted);

  // Whether another round can be announced now. True whenever all that were announced are finished.
  bool room() const;
  // The same, where it is not time to look what can be finished.
  bool ready() const { return announced_ - finished_ < unfinished_unseen && room(); }
  // Finishes what it can, and waits for room. REQUIRES: this rank is through with all that it announced.
  void await_room(std::chrono::milliseconds timeout);
  // Where up to bytes of what this rank gives in the next round are to be written; at most
  // SegmentLayout::gift_bytes.
  std::byte* gift(std::size_t bytes) { return gift_of(rank_, announced_, bytes); }
  // What is the same at all ranks.
  struct Call {
    std::uint64_t number, operation;
  };
  // given: what the gift is, in the caller's words. REQUIRES: room().
  void announce(const Call& call, std::uint32_t given);

  // What follows is about the round at hand: the oldest that this rank is not through with.
  static constexpr int everybody = -1;
  // Until that rank, or everybody, has announced it. False when the deadline passed first.
  bool await_before(int from, const Deadline& deadline);
  void await(int from, std::chrono::milliseconds timeout);
  // Throws when the group is broken: for who waits for nobody.
  void check_group() const;
  // What rank r gave, which it knows to be of so many bytes. REQUIRES: it has announced the round.
  const std::byte* gift_from(int r, std::size_t bytes) const { return gift_of(r, through_, bytes); }
  std::uint32_t given_by(int r) const { return place(r, through_).given; }
  // Until everybody has called it in this round. What a rank wrote before is visible to all behind it.
  void meet(std::chrono::milliseconds timeout);
  // This rank is through with it. Throws what waiting throws when an older round shows that the calls differ.
  void leave();

  // Lets sleepers look at what interrupts them.
  void wake() noexcept;

 private:
  // AnnouncementRing that may wait to be finished before this rank looks for it: looking costs a cache line of every
  // rank's.
  static constexpr std::uint64_t unfinished_unseen = rounds_at_once / 2;

  // After so many further rounds everybody has most likely announced one.
  static constexpr std::uint64_t settled = 2;

  // Another rank, found without a multiplication: this is on the path of every small collective.
  struct Peer {
    int rank;
    RankState* state;
    Announcement& place(std::uint64_t round) const { return state->announcements[round % rounds_at_once]; }
    bool here(std::uint64_t round) const { return place(round).made.reached(times_used(round)); }
  };
  Announcement& place(int r, std::uint64_t round) const { return board_.rank(r).announcements[round % rounds_at_once]; }
  std::byte* gift_of(int r, std::uint64_t round, std::size_t bytes) const {
    return bytes <= Announcement::room ? place(r, round).gift : board_.gift(r, round);
  }
  static std::uint32_t times_used(std::uint64_t round) {
    return static_cast<std::uint32_t>(round / rounds_at_once + 1);
  }
  bool all_here(std::uint64_t round) const;
  // Calls visit(peer) for that rank, or for all others, while it returns true. Whether it always did.
  template <class Visit>
  bool for_each(int from, Visit visit) const;
  bool await_in(std::uint64_t round, int from, const Deadline& deadline) const;
  void accept(int from);
  WaitLimits limits(const Peer& peer, const Deadline& deadline) const {
    return {interrupted_, peer.state->presence, patience_, deadline};
  }
  void check_calls(std::uint64_t round, int from) const;
  // Of the rounds before that one, all that everybody has announced.
  void finish_ready(std::uint64_t before);
  // At most one, as this rank is through with that one.
  void finish_in_passing(std::uint64_t left);
  void finish_oldest();

  const SegmentLayout& board_;
  const int rank_;
  const std::atomic<bool>& interrupted_;
  const SpinPolicy patience_;
  Announcement* const own_;                              // those of this rank
  std::array<std::uint64_t, rounds_at_once> numbers_{};  // of what it announced there
  std::vector<Peer> peers_;
  std::uint64_t announced_ = 0, through_ = 0, finished_ = 0;  // rounds, by this rank; none more than the one before
  std::uint64_t all_finished_ = 0;                            // rounds that every rank is known to have finished
  std::uint32_t meetings_ = 0;
  bool whole_ = false;  // everybody has announced the round at hand, and the same
};

}  // namespace ddprun::comm
