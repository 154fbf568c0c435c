#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "worker/comm/health/operation_times.h"
#include "worker/comm/operations/operation.h"

namespace ddprun::comm {

// The recent and current operations of one rank, each with its state and the time of its last change. A writer pays a
// few stores and one read of a coarse clock.
//
// Ownership: plain memory of its owner, about 40 KiB.
// Threads: any thread may read at any time. A collective is recorded by one thread at a time, in the order of the
// sequence numbers, and several may be in progress at once; sends and receives are recorded by any thread. There is no
// lock: each slot has one writer at a time, and a version by which readers notice that it changed while they read.
// Errors: none.
// Units: times by the steady clock, some milliseconds coarse; those of OperationTimes are exact.
class OperationLog {
 public:
  using Clock = std::chrono::steady_clock;

  enum class State : std::uint8_t { none, submitted, started, done, failed };

  struct Entry {
    Operation operation;
    std::uint64_t sequence = 0;           // a collective's number, or that of a send or receive (begin_transfer)
    std::chrono::milliseconds timeout{};  // runs from its start
    State state = State::none;
    Clock::time_point changed;  // start of this state; a few milliseconds coarse

    Clock::time_point deadline() const { return changed + timeout; }  // REQUIRES state == started
  };

  // The index of an entry, valid from begin to end; a later operation reuses it.
  using Slot = std::size_t;
  static constexpr std::size_t collectives_kept = 64;
  static constexpr std::size_t transfers_kept = 256;  // more of them in progress at a time are not recorded
  static constexpr int most_in_progress = 16;         // the largest number of collectives at a time
  static constexpr Slot no_slot = collectives_kept + transfers_kept;

  // Notes that a collective is queued behind earlier ones. Only begin() records it if its slot is still in use.
  void submit(const Operation& operation, std::uint64_t sequence, std::chrono::milliseconds timeout);
  // Notes that a collective starts; it is in progress until end(). One call at a time, in the order of the sequence.
  Slot begin(const Operation& operation, std::uint64_t sequence, std::chrono::milliseconds timeout);
  // Notes that a send or receive starts. number: its place among those of the same sender, receiver and tag, from 1, so
  // that both ends of a message have the same one; 0 if unknown. Returns no_slot when too many are in progress.
  Slot begin_transfer(const Operation& operation, std::uint64_t number, std::chrono::milliseconds timeout);
  void end(Slot slot, bool failed = false);

  // For readers:

  // Returns the collective of this number, if it was recorded and is still kept.
  std::optional<Entry> collective(std::uint64_t sequence) const;
  // Returns none if the slot was never used, or changes faster than it can be read, which no stalled operation does.
  std::optional<Entry> read(Slot slot) const;
  // Returns the oldest collective in progress, for which other ranks may wait; otherwise the newest one that started.
  std::optional<Entry> current() const;
  // Returns the number of the oldest collective in progress; otherwise that of the next one.
  std::uint64_t sequence() const;
  // Calls visit(slot, entry) for all operations that started and have not ended.
  template <class Visit>
  void for_each_in_progress(Visit visit) const;
  // Returns those of the count collectives from first on that are kept, in order.
  std::vector<Entry> collectives(std::uint64_t first, std::size_t count) const;
  // Returns the times that the ended ones took, by kind and size.
  std::vector<OperationTiming> timings() const { return times_.read(); }

 private:
  static_assert(std::is_trivially_copyable_v<Operation> && sizeof(Operation) % sizeof(std::uint64_t) == 0);
  static constexpr std::size_t operation_words = sizeof(Operation) / sizeof(std::uint64_t);

  struct alignas(128) StoredEntry {
    std::atomic<std::uint64_t> version = 0;   // odd while the other fields change
    std::atomic<std::uint64_t> progress = 0;  // the state, and the time of its last change
    std::array<std::atomic<std::uint64_t>, operation_words> operation{};
    std::atomic<std::uint64_t> sequence = 0;
    std::atomic<std::chrono::milliseconds::rep> timeout = 0;
    std::atomic<Clock::rep> began = 0;  // the start by the exact clock, of a collective that is timed; else 0
  };

  std::optional<std::uint64_t> oldest_in_progress() const;
  void record_time(Slot slot);
  static std::uint64_t progress_now(State state);
  static State state_of(std::uint64_t progress);
  static void write(StoredEntry& entry, const Operation& operation, std::uint64_t sequence,
                    std::chrono::milliseconds timeout, State state);

  std::array<StoredEntry, collectives_kept + transfers_kept> entries_;
  OperationTimes times_;
  std::atomic<std::uint64_t> begun_ = 0;
  alignas(64) std::atomic<std::uint64_t> transfers_ = 0;
};

template <class Visit>
void OperationLog::for_each_in_progress(Visit visit) const {
  for (Slot slot = 0; slot < entries_.size(); ++slot) {
    if (state_of(entries_[slot].progress.load(std::memory_order_acquire)) != State::started) continue;
    if (const auto entry = read(slot); entry && entry->state == State::started) visit(slot, *entry);
  }
}

}  // namespace ddprun::comm
