#pragma once

#include <atomic>

#include "worker/comm/backends/shm/announcement_ring.h"
#include "worker/comm/backends/shm/direct_collectives.h"
#include "worker/comm/backends/shm/inline_collectives.h"
#include "worker/comm/backends/shm/processor_sharing.h"
#include "worker/comm/backends/shm/rank_inputs.h"
#include "worker/comm/backends/shm/staged_collectives.h"
#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// The collectives over a SegmentLayout: announces each in a round, and selects its protocol by what all ranks publish
// with their announcements: their data (InlineCollectives), handles of registered memory (DirectCollectives), or
// nothing or different things (StagedCollectives). References what it is made of. Any thread may call wake(); all
// else is for one thread at a time. Throws what AnnouncementRing and the protocols throw.
class ShmCollectives final : public NonblockingCollectives {
 public:
  ShmCollectives(const SegmentLayout& layout, int rank, const OwnRegions& regions, const std::atomic<bool>& interrupted)
      : rank_(rank),
        cores_are_taken_(layout.cores_are_taken()),
        sharing_(layout, rank),
        ring_(layout, rank, interrupted, sharing_),
        inline_(layout.ranks(), rank, ring_),
        direct_(layout.ranks(), rank, ring_, regions),
        staged_(layout, rank, interrupted, sharing_) {}

  // Announces the collective if that needs no waiting. REQUIRES: no started collective is unfinished.
  void announce(const Collective& collective) noexcept override;
  // Waits only where a thread that waits beside the caller would take its core.
  bool meet(const Collective& collective, const Deadline& deadline) noexcept override;
  // REQUIRES: no started collective is unfinished.
  void execute(const Collective& collective);
  // Announces a small collective, so that peers need not wait for this rank. Returns false if it is not small, or too
  // many are started.
  bool start(const Collective& collective) override;
  // Finishes the oldest started collective once all ranks have announced it.
  bool test(const Collective& collective, const Deadline& deadline) override;
  // Wakes all sleepers, so that they check whether they are interrupted.
  void wake() noexcept;

 private:
  void publish(const Collective& collective);
  PayloadKind prepare_payload(const Collective& collective);
  void announce(const Collective& collective, PayloadKind kind) {
    ring_.announce({collective.sequence, fingerprint(collective.operation)}, kind);
    if (kind != PayloadKind::none) copy_own_part(collective, rank_);  // otherwise a chunk at a time
    if (kind == PayloadKind::data) inline_.prepare_next(collective.operation);
  }
  template <class Await>
  bool await_peers(const Collective& collective, Await await);
  bool sends_only(const Collective& collective) const;
  PayloadKind common_payload_kind(const Collective& collective) const;
  void finish(const Collective& collective);

  const int rank_;
  const bool cores_are_taken_;
  ProcessorSharing sharing_;
  AnnouncementRing ring_;
  InlineCollectives inline_;
  DirectCollectives direct_;
  StagedCollectives staged_;
  bool announced_ = false;  // the collective that execute() is called with next
};

}  // namespace ddprun::comm
