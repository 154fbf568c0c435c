#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "ddprun/worker/comm/operations/operation.h"

namespace ddprun::comm {

// What one rank has done lately and is doing now: its last operations, each with its state and when that came about.
// Readable by any thread while the rank works; what it costs the rank is a few stores and a look at a coarse clock.
//
// Collectives are noted by their sequence number, from submission to end, each by one thread at a time (the queue, or
// the caller's own order, hands an operation from thread to thread); some may be in progress at once. Sends and
// receives go on beside them, from any thread.
// No lock: each entry has one writer at a time, and a version by which readers notice that it changed under them.
class OperationLog {
 public:
  using Clock = std::chrono::steady_clock;

  enum class State : std::uint8_t { none, submitted, started, done, failed };

  struct Entry {
    Operation operation;
    std::uint64_t sequence = 0;           // of a collective, or of a send or receive (begin_transfer)
    std::chrono::milliseconds timeout{};  // runs from its start
    State state = State::none;
    Clock::time_point changed;  // when it came into this state; a few milliseconds coarse

    Clock::time_point deadline() const { return changed + timeout; }  // REQUIRES state == started
  };

  // Where an entry is kept: from begin to end. Some later operation gets the same.
  using Place = std::size_t;
  static constexpr std::size_t collectives_kept = 64;
  static constexpr std::size_t transfers_kept = 256;  // and in progress at a time: beyond them, none is noted
  static constexpr int most_in_progress = 16;         // collectives at a time
  static constexpr Place nowhere = collectives_kept + transfers_kept;

  // A collective waits for those before it. One that is too far ahead of what is carried out is noted at its begin().
  void submit(const Operation& operation, std::uint64_t sequence, std::chrono::milliseconds timeout);
  // It is carried out now, until end(). One call at a time, in the order of the sequence.
  Place begin(const Operation& operation, std::uint64_t sequence, std::chrono::milliseconds timeout);
  // Of a send or receive; number: among those of its sender, receiver and tag, from 1 on, so that the two ends of a
  // message have the same; 0: unknown. Nowhere when too many are in progress.
  Place begin_transfer(const Operation& operation, std::uint64_t number, std::chrono::milliseconds timeout);
  void end(Place place, bool failed = false);

  // What follows is for readers.

  // The collective of this number, when it was submitted or begun, and is still kept.
  std::optional<Entry> collective(std::uint64_t sequence) const;
  // None when nothing was ever kept there, or it changes faster than it can be read: whatever it is, it does not hang.
  std::optional<Entry> read(Place place) const;
  // The oldest collective that this rank is in, on which the others may wait; outside, the newest that it was in.
  std::optional<Entry> current() const;
  // Of the oldest collective that this rank is in, or, outside, of the next one that it will be in.
  std::uint64_t sequence() const;
  // Calls visit(place, entry) for all that are started and not ended.
  template <class Visit>
  void for_each_in_progress(Visit visit) const;
  // Of the count collectives from first on those that are kept, in their order.
  std::vector<Entry> collectives(std::uint64_t first, std::size_t count) const;

 private:
  static_assert(std::is_trivially_copyable_v<Operation> && sizeof(Operation) % sizeof(std::uint64_t) == 0);
  static constexpr std::size_t operation_words = sizeof(Operation) / sizeof(std::uint64_t);

  struct alignas(128) Slot {
    std::atomic<std::uint64_t> version = 0;   // odd while what follows changes
    std::atomic<std::uint64_t> progress = 0;  // the state, and since when
    std::array<std::atomic<std::uint64_t>, operation_words> operation{};
    std::atomic<std::uint64_t> sequence = 0;
    std::atomic<std::chrono::milliseconds::rep> timeout = 0;
  };

  std::optional<std::uint64_t> oldest_in_progress() const;
  static std::uint64_t progress_now(State state);
  static State state_of(std::uint64_t progress);
  static void write(Slot& slot, const Operation& operation, std::uint64_t sequence, std::chrono::milliseconds timeout,
                    State state);

  std::array<Slot, collectives_kept + transfers_kept> slots_;
  std::atomic<std::uint64_t> begun_ = 0;
  alignas(64) std::atomic<std::uint64_t> transfers_ = 0;
};

template <class Visit>
void OperationLog::for_each_in_progress(Visit visit) const {
  for (Place place = 0; place < slots_.size(); ++place) {
    if (state_of(slots_[place].progress.load(std::memory_order_acquire)) != State::started) continue;
    if (const auto entry = read(place); entry && entry->state == State::started) visit(place, *entry);
  }
}

}  // namespace ddprun::comm
