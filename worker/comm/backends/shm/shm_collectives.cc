#include "worker/comm/backends/shm/shm_collectives.h"

#include <exception>
#include <utility>

namespace ddprun::comm {

void ShmCollectives::announce(const Collective& collective) noexcept {
  if (!ring_.can_announce_at_once()) return;
  publish(collective);
  announced_ = true;
}

bool ShmCollectives::meet(const Collective& collective, const Deadline& deadline) noexcept {
  if (!cores_are_taken_) return false;
  announce(collective);
  if (!announced_) return false;
  try {
    return ring_.try_await(AnnouncementRing::all_ranks, deadline);
  } catch (const std::exception&) {
    return true;
  }
}

void ShmCollectives::execute(const Collective& collective) {
  if (!std::exchange(announced_, false)) {
    ring_.await_free_entry(collective.timeout);
    publish(collective);
  }
  await_peers(collective, [&](int from) { return ring_.await(from, collective.timeout), true; });
  finish(collective);
}

bool ShmCollectives::start(const Collective& collective) {
  if (!inline_.fits(collective.operation) || !ring_.can_announce()) return false;
  inline_.publish(collective);
  announce(collective, PayloadKind::data);
  return true;
}

bool ShmCollectives::test(const Collective& collective, const Deadline& deadline) {
  if (!await_peers(collective, [&](int from) { return ring_.try_await(from, deadline); })) return false;
  finish(collective);
  return true;
}

void ShmCollectives::publish(const Collective& collective) {
  announce(collective, prepare_payload(collective));
}

PayloadKind ShmCollectives::prepare_payload(const Collective& collective) {
  if (direct_.publish(collective)) return PayloadKind::region;
  if (inline_.fits(collective.operation)) {
    inline_.publish(collective);
    return PayloadKind::data;
  }
  staged_.start_early(collective);
  return PayloadKind::none;
}

// A rank that only sends waits for no peer; a receiver of a broadcast waits only for the root.
template <class Await>
bool ShmCollectives::await_peers(const Collective& collective, Await await) {
  const auto& operation = collective.operation;
  if (sends_only(collective)) return ring_.check_group(), true;
  if (operation.kind == OpKind::broadcast && operation.peer != rank_) {
    if (!await(operation.peer)) return false;
    if (ring_.payload_kind(operation.peer) == PayloadKind::data) return true;
  }
  return await(AnnouncementRing::all_ranks);
}

// Returns whether this rank is broadcast's root or no root of a reduce, its data is in its announcement, and no rank
// can have chosen another protocol.
bool ShmCollectives::sends_only(const Collective& collective) const {
  const auto& operation = collective.operation;
  if (ring_.payload_kind(rank_) != PayloadKind::data) return false;
  if (operation.kind == OpKind::broadcast) return operation.peer == rank_;
  return operation.kind == OpKind::reduce && operation.peer != rank_ && direct_.too_small(operation);
}

// Returns none where ranks published different things. The answer is the same at every rank.
PayloadKind ShmCollectives::common_payload_kind(const Collective& collective) const {
  if (collective.operation.kind == OpKind::broadcast) return ring_.payload_kind(collective.operation.peer);
  return ring_.common_payload_kind();
}

void ShmCollectives::finish(const Collective& collective) {
  if (!sends_only(collective)) {
    switch (common_payload_kind(collective)) {
      case PayloadKind::data:
        inline_.execute(collective);
        break;
      case PayloadKind::region:
        direct_.execute(collective);
        break;
      case PayloadKind::none:
        staged_.execute(collective);
        break;
    }
  }
  ring_.end_round();
}

void ShmCollectives::wake() noexcept {
  ring_.wake();
  staged_.wake();
}

}  // namespace ddprun::comm
