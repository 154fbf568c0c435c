#include "ddprun/worker/comm/shm/rounds.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace ddprun::comm {
// Why the round after the finished ones, number f, always has room: whoever announced round f - 1 had then finished
// more than f - rounds_at_once, by the first condition; this rank saw that announcement, so all_finished_ says as much.
bool Rounds::room() const {
  return announced_ - finished_ <= rounds_at_once - 2 && announced_ < all_finished_ + rounds_at_once;
}

std::byte* Rounds::gift_of(int r, std::uint64_t round, std::size_t bytes) const {
  if (bytes <= Announcement::room) return place(r, round).gift;
  return board_.gift(r, round);
}

// What is written here and into the gift is ordered by the signal word: a release, and an acquire by whoever sees it.
// Nobody reads the place meanwhile: all have finished the round that used it before.
void Rounds::announce(std::uint64_t call, std::uint32_t given) {
  auto& own = place(rank_, announced_);
  own.call = call;
  own.finished = static_cast<std::uint32_t>(finished_);
  own.given = given;
  own.made.raise();
  ++announced_;
}

bool Rounds::await_all_awake() const {
  for (int r = 0; r < board_.ranks(); ++r)
    if (r != rank_ && !place(r, finished_).made.awake_until(times_used(finished_), patience_)) return false;
  return true;
}

bool Rounds::await_all_before(const Deadline& deadline) {
  for (int r = 0; r < board_.ranks(); ++r) {
    if (r == rank_ || here(r)) continue;
    const WaitLimits limits{interrupted_, board_.rank(r).presence, patience_, deadline};
    if (!place(r, finished_).made.await_before(times_used(finished_), limits)) return false;
  }
  check();
  return true;
}

// The clock is asked only when somebody lets the others wait.
void Rounds::await_all(std::chrono::milliseconds timeout) {
  if (await_all_awake()) return check();
  if (!await_all_before(Deadline::in(timeout))) throw std::runtime_error("timed out");
}

void Rounds::check() const {
  if (interrupted_.load(std::memory_order_relaxed)) throw std::runtime_error("interrupted");
  const auto call = place(rank_, finished_).call;
  for (int r = 0; r < board_.ranks(); ++r) {
    if (board_.rank(r).presence.load(std::memory_order_relaxed) == Presence::broken)
      throw std::runtime_error("a peer broke the group");
    if (place(r, finished_).call != call)
      throw std::runtime_error("rank " + std::to_string(r) + " calls another operation");
  }
}

void Rounds::finish() {
  // None is further back than some rounds: the difference of the lower halves tells how many.
  std::uint32_t behind = 0;
  for (int r = 0; r < board_.ranks(); ++r)
    if (r != rank_) behind = std::max(behind, static_cast<std::uint32_t>(finished_) - place(r, finished_).finished);
  ++finished_;
  all_finished_ = std::max(all_finished_, finished_ - 1 - behind);
}

void Rounds::wake() noexcept {
  for (int r = 0; r < board_.ranks(); ++r)
    for (auto& each : board_.rank(r).announcements) each.made.wake();
}

}  // namespace ddprun::comm
