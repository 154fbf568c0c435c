#include "worker/comm/backends/shm/announcement_ring.h"

#include <algorithm>
#include <stdexcept>

#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

AnnouncementRing::AnnouncementRing(const SegmentLayout& layout, int rank, const std::atomic<bool>& interrupted,
                                   ProcessorSharing& sharing)
    : layout_(layout),
      rank_(rank),
      interrupted_(interrupted),
      spin_policy_(layout.spin_policy()),
      sharing_(sharing),
      own_entries_(layout.rank(rank).announcements.data()) {
  for_each_peer(layout.ranks(), rank, [&](int r) { peers_.push_back({r, &layout.rank(r)}); });
}

void AnnouncementRing::throw_broken() const {
  throw std::runtime_error(interrupted_ ? "interrupted" : "a peer broke the group");
}

void AnnouncementRing::throw_differs(std::uint64_t round, int rank) const {
  throw CallsDiffer(sequences_[round % ring_entries], rank);
}

bool AnnouncementRing::announced_by(int from, std::uint64_t round) const {
  return for_each(from, [&](const Peer& peer) { return peer.announced(round); });
}

// These functions are inlined, as every small collective calls them.
[[gnu::always_inline]] inline void AnnouncementRing::accept(int from) {
  check_group();
  check_calls(consumed_, from);
  current_complete_ = from == all_ranks || peers_.size() == 1;
}

[[gnu::always_inline]] inline void AnnouncementRing::retire_announced(std::uint64_t before) {
  for (; retired_ < before && announced_by(all_ranks, retired_); retire_oldest()) check_calls(retired_, all_ranks);
}

void AnnouncementRing::await_free_entry(std::chrono::milliseconds timeout) {
  if (announced_ - retired_ >= max_unretired) retire_announced(consumed_);
  while (!can_announce()) {
    check_group();  // a round that failed is never retired
    if (!await_round(retired_, all_ranks, Deadline::in(timeout))) throw std::runtime_error("timed out");
    retire_announced(consumed_);
  }
}

// The counter orders what is written here and into the payload: a release, and an acquire by every reader. Nobody reads
// the entry meanwhile, since all ranks have retired the round that used it before.
void AnnouncementRing::announce(const Call& call, PayloadKind kind) {
  const auto index = announced_ % ring_entries;
  auto& own = own_entries_[index];
  sequences_[index] = call.sequence;
  own.call = call.sequence ^ call.fingerprint;
  own.retired = static_cast<std::uint32_t>(retired_);
  own.payload_kind = kind;
  sharing_.record_own();
  own.announced.increment();
  ++announced_;
}

bool AnnouncementRing::await_round(std::uint64_t round, int from, const Deadline& deadline) const {
  return for_each(from, [&](const Peer& peer) {
    return peer.announced(round) || peer.entry(round).announced.try_wait(times_used(round), limits(peer, deadline));
  });
}

bool AnnouncementRing::try_await(int from, const Deadline& deadline) {
  if (!announced_by(from, consumed_) && !await_round(consumed_, from, deadline)) return false;
  accept(from);
  return true;
}

// Spins before it reads the clock.
void AnnouncementRing::await(int from, std::chrono::milliseconds timeout) {
  const auto times = times_used(consumed_);
  const bool soon = for_each(
      from, [&](const Peer& peer) { return peer.entry(consumed_).announced.spin(times, spin_policy_, ranks(peer)); });
  if (!soon && !await_round(consumed_, from, Deadline::in(timeout))) throw std::runtime_error("timed out");
  accept(from);
}

void AnnouncementRing::barrier(std::chrono::milliseconds timeout) {
  layout_.rank(rank_).barriers.increment();
  ++barriers_;
  const bool soon = for_each(
      all_ranks, [&](const Peer& peer) { return peer.state->barriers.spin(barriers_, spin_policy_, ranks(peer)); });
  if (soon) return;
  const auto deadline = Deadline::in(timeout);
  for_each(all_ranks,
           [&](const Peer& peer) { return peer.state->barriers.wait(barriers_, limits(peer, deadline)), true; });
}

void AnnouncementRing::end_round() {
  const auto ended = consumed_++;
  if (!current_complete_) return retire_one(ended);
  current_complete_ = false;
  retire_announced(ended);  // all ranks have announced the rounds before it, too
  retire_oldest();
}

// Retires one round and prefetches the lines of the next one. Retiring several only when no entry is free would delay
// the other ranks for as long as that takes. Younger rounds are left alone: their lines are still to be written.
void AnnouncementRing::retire_one(std::uint64_t consumed) {
  if (retired_ + settling_rounds <= consumed && announced_by(all_ranks, retired_)) {
    check_calls(retired_, all_ranks);
    retire_oldest();
  }
  if (retired_ + settling_rounds > consumed + 1) return;
  for (const auto& peer : peers_) __builtin_prefetch(&peer.entry(retired_));
}

// REQUIRES: all ranks have announced it, with the same call.
void AnnouncementRing::retire_oldest() {
  // No rank is behind by more than the ring's size, so the difference of the lower halves is exact.
  std::uint32_t behind = 0;
  for_each(all_ranks, [&](const Peer& peer) {
    behind = std::max(behind, static_cast<std::uint32_t>(retired_) - peer.entry(retired_).retired);
    return true;
  });
  ++retired_;
  retired_by_all_ = std::max(retired_by_all_, retired_ - 1 - behind);
}

void AnnouncementRing::wake() noexcept {
  for (int r = 0; r < layout_.ranks(); ++r) {
    for (auto& each : layout_.rank(r).announcements) each.announced.wake();
    layout_.rank(r).barriers.wake();
  }
}

}  // namespace ddprun::comm
