#include "ddprun/worker/comm/backends/shm/announcement_ring.h"

#include <algorithm>
#include <stdexcept>

#include "ddprun/worker/comm/execution/transport.h"

namespace ddprun::comm {

AnnouncementRing::AnnouncementRing(const SegmentLayout& board, int rank, const std::atomic<bool>& interrupted)
    : board_(board),
      rank_(rank),
      interrupted_(interrupted),
      patience_(board.patience()),
      own_(board.rank(rank).announcements.data()) {
  for (int r = 0; r < board.ranks(); ++r)
    if (r != rank) peers_.push_back({r, &board.rank(r)});
}

template <class Visit>
bool AnnouncementRing::for_each(int from, Visit visit) const {
  if (from != everybody) return from == rank_ || visit(Peer{from, &board_.rank(from)});
  for (const auto& peer : peers_)
    if (!visit(peer)) return false;
  return true;
}

bool AnnouncementRing::all_here(std::uint64_t round) const {
  return for_each(everybody, [&](const Peer& peer) { return peer.here(round); });
}

// Why the round after the finished ones, number f, always has room: whoever announced round f - 1 had then finished
// more than f - 1 - rounds_at_once, by the first condition; this rank saw that announcement, so all_finished_ says as
// much.
bool AnnouncementRing::room() const {
  return announced_ - finished_ <= rounds_at_once - 2 && announced_ < all_finished_ + rounds_at_once;
}

void AnnouncementRing::await_room(std::chrono::milliseconds timeout) {
  if (announced_ - finished_ >= unfinished_unseen) finish_ready(through_);
  while (!room()) {
    check_group();  // a round that failed is never finished
    if (!await_in(finished_, everybody, Deadline::in(timeout))) throw std::runtime_error("timed out");
    finish_ready(through_);
  }
}

// What is written here and into the gift is ordered by the signal word: a release, and an acquire by whoever sees it.
// Nobody reads the place meanwhile: all have finished the round that used it before.
void AnnouncementRing::announce(const Call& call, std::uint32_t given) {
  const auto at = announced_ % rounds_at_once;
  auto& own = own_[at];
  numbers_[at] = call.number;
  own.call = call.number ^ call.operation;
  own.finished = static_cast<std::uint32_t>(finished_);
  own.given = given;
  own.made.raise();
  ++announced_;
}

bool AnnouncementRing::await_in(std::uint64_t round, int from, const Deadline& deadline) const {
  return for_each(from, [&](const Peer& peer) {
    return peer.here(round) || peer.place(round).made.await_before(times_used(round), limits(peer, deadline));
  });
}

bool AnnouncementRing::await_before(int from, const Deadline& deadline) {
  if (!await_in(through_, from, deadline)) return false;
  accept(from);
  return true;
}

// The clock is asked only when somebody lets the others wait.
void AnnouncementRing::await(int from, std::chrono::milliseconds timeout) {
  const auto times = times_used(through_);
  const bool soon =
      for_each(from, [&](const Peer& peer) { return peer.place(through_).made.awake_until(times, patience_); });
  if (!soon && !await_in(through_, from, Deadline::in(timeout))) throw std::runtime_error("timed out");
  accept(from);
}

void AnnouncementRing::accept(int from) {
  check_group();
  check_calls(through_, from);
  whole_ = from == everybody || peers_.size() == 1;
}

void AnnouncementRing::meet(std::chrono::milliseconds timeout) {
  board_.rank(rank_).met.raise();
  ++meetings_;
  if (for_each(everybody, [&](const Peer& peer) { return peer.state->met.awake_until(meetings_, patience_); })) return;
  const auto deadline = Deadline::in(timeout);
  for_each(everybody, [&](const Peer& peer) { return peer.state->met.await(meetings_, limits(peer, deadline)), true; });
}

void AnnouncementRing::check_group() const {
  if (interrupted_.load(std::memory_order_relaxed)) throw std::runtime_error("interrupted");
  for_each(everybody, [&](const Peer& peer) {
    if (peer.state->presence.load(std::memory_order_relaxed) != PeerState::broken) return true;
    throw std::runtime_error("a peer broke the group");
  });
}

void AnnouncementRing::check_calls(std::uint64_t round, int from) const {
  const auto call = own_[round % rounds_at_once].call;
  for_each(from, [&](const Peer& peer) {
    if (peer.place(round).call == call) return true;
    throw CallsDiffer(numbers_[round % rounds_at_once], peer.rank);
  });
}

void AnnouncementRing::leave() {
  const auto left = through_++;
  if (!whole_) return finish_in_passing(left);
  whole_ = false;
  finish_ready(left);  // all have announced those before it, too
  finish_oldest();
}

// One round, and the lines of the next one are on their way meanwhile: to look for several at once, when there is no
// room any more, would let the others wait for as long. Younger ones are left alone: their lines are still to be
// written.
void AnnouncementRing::finish_in_passing(std::uint64_t left) {
  if (finished_ + settled <= left && all_here(finished_)) {
    check_calls(finished_, everybody);
    finish_oldest();
  }
  if (finished_ + settled > left + 1) return;
  for (const auto& peer : peers_) __builtin_prefetch(&peer.place(finished_));
}

void AnnouncementRing::finish_ready(std::uint64_t before) {
  for (; finished_ < before && all_here(finished_); finish_oldest()) check_calls(finished_, everybody);
}

// REQUIRES: everybody has announced it, and the same.
void AnnouncementRing::finish_oldest() {
  // None is further back than some rounds: the difference of the lower halves tells how many.
  std::uint32_t behind = 0;
  for_each(everybody, [&](const Peer& peer) {
    behind = std::max(behind, static_cast<std::uint32_t>(finished_) - peer.place(finished_).finished);
    return true;
  });
  ++finished_;
  all_finished_ = std::max(all_finished_, finished_ - 1 - behind);
}

void AnnouncementRing::wake() noexcept {
  for (int r = 0; r < board_.ranks(); ++r) {
    for (auto& each : board_.rank(r).announcements) each.made.wake();
    board_.rank(r).met.wake();
  }
}

}  // namespace ddprun::comm
