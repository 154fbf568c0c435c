#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ddprun/common/deadline.h"
#include "ddprun/worker/comm/shm/board.h"

namespace ddprun::comm {

// How the ranks of a Board come together for an operation: each announces what it calls, and gives along what the
// others need of it, in one cache line where that fits. A round is over for a rank once it has seen all announcements
// and taken what it needs of them. So an operation on little memory is one round, with one exchange of cache lines.
//
// A rank may announce some rounds ahead of those that it has finished. It says with each how many it has finished; a
// place is used again only when all ranks are known to have finished the round that used it before. How far ahead is
// limited such that the round after the finished ones can always be announced: see room().
//
// One thread at a time. Waiting throws std::runtime_error when interrupted, past the timeout, or when another rank
// calls something else.
class Rounds {
 public:
  Rounds(const Board& board, int rank, const std::atomic<bool>& interrupted)
      : board_(board), rank_(rank), interrupted_(interrupted), patience_(Patience::for_ranks(board.ranks())) {}

  // Whether another round can be announced now. True whenever all that were announced are finished.
  bool room() const;
  // Where up to bytes of what this rank gives in the next round are to be written; at most
  // Board::gift_bytes.
  std::byte* gift(std::size_t bytes) { return gift_of(rank_, announced_, bytes); }
  // call: identifies the operation; given: what the gift is, in the caller's words. REQUIRES: room().
  void announce(std::uint64_t call, std::uint32_t given);

  // What follows is about the oldest round that is not finished.
  // False when the deadline passed first.
  bool await_all_before(const Deadline& deadline);
  void await_all(std::chrono::milliseconds timeout);
  // What rank r gave, which it knows to be of so many bytes. REQUIRES: all are here.
  const std::byte* gift_from(int r, std::size_t bytes) const { return gift_of(r, finished_, bytes); }
  std::uint32_t given_by(int r) const { return place(r, finished_).given; }
  void finish();

  // Lets sleepers look at what interrupts them.
  void wake() noexcept;

 private:
  Announcement& place(int r, std::uint64_t round) const { return board_.rank(r).announcements[round % rounds_at_once]; }
  std::byte* gift_of(int r, std::uint64_t round, std::size_t bytes) const;
  static std::uint32_t times_used(std::uint64_t round) {
    return static_cast<std::uint32_t>(round / rounds_at_once + 1);
  }
  // Without a sleep. Whether they are.
  bool await_all_awake() const;
  bool here(int r) const { return place(r, finished_).made.reached(times_used(finished_)); }
  void check() const;

  const Board& board_;
  const int rank_;
  const std::atomic<bool>& interrupted_;
  const Patience patience_;
  std::uint64_t announced_ = 0, finished_ = 0;  // rounds, by this rank
  std::uint64_t all_finished_ = 0;              // rounds that every rank is known to have finished
};

}  // namespace ddprun::comm
