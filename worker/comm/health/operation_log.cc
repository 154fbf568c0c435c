#include "worker/comm/health/operation_log.h"

#include <cstring>
#include <ctime>

namespace ddprun::comm {
namespace {

constexpr std::uint64_t state_bits = 3;
constexpr int read_attempts = 100;

// The monotonic clock as of the kernel's last tick: a few milliseconds late, at a fraction of the cost.
std::uint64_t coarse_nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

std::uint64_t OperationLog::progress_now(State state) {
  return coarse_nanoseconds() << state_bits | static_cast<std::uint64_t>(state);
}

OperationLog::State OperationLog::state_of(std::uint64_t progress) {
  return static_cast<State>(progress & ((1 << state_bits) - 1));
}

// A seqlock: the version is odd while the content changes. Each store releases and each load of read() acquires, so a
// reader that saw a word of the new content also sees the odd version before it. Copying through memory in words of
// another size would stall on store forwarding, and this is on the path of every small collective.
[[gnu::always_inline]] inline void OperationLog::write(StoredEntry& entry, const Operation& operation,
                                                       std::uint64_t sequence, std::chrono::milliseconds timeout,
                                                       State state) {
  std::array<std::uint64_t, operation_words> words;
  std::memcpy(words.data(), &operation, sizeof(operation));
  const auto version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < words.size(); ++i) entry.operation[i].store(words[i], std::memory_order_release);
  entry.sequence.store(sequence, std::memory_order_release);
  entry.timeout.store(timeout.count(), std::memory_order_release);
  entry.progress.store(progress_now(state), std::memory_order_release);
  entry.version.store(version + 2, std::memory_order_release);
}

void OperationLog::submit(const Operation& operation, std::uint64_t sequence, std::chrono::milliseconds timeout) {
  auto& entry = entries_[sequence % collectives_kept];
  const auto state = state_of(entry.progress.load(std::memory_order_acquire));
  if (state == State::submitted || state == State::started) return;  // an earlier one still uses the slot
  write(entry, operation, sequence, timeout, State::submitted);
}

OperationLog::Slot OperationLog::begin(const Operation& operation, std::uint64_t sequence,
                                       std::chrono::milliseconds timeout) {
  const Slot slot = sequence % collectives_kept;
  write(entries_[slot], operation, sequence, timeout, State::started);
  const bool timed = OperationTimes::chosen(sequence);
  entries_[slot].began.store(timed ? Clock::now().time_since_epoch().count() : 0, std::memory_order_relaxed);
  begun_.store(sequence + 1, std::memory_order_release);
  return slot;
}

OperationLog::Slot OperationLog::begin_transfer(const Operation& operation, std::uint64_t number,
                                                std::chrono::milliseconds timeout) {
  for (std::size_t tries = 0; tries < transfers_kept; ++tries) {
    const auto turn = transfers_.fetch_add(1, std::memory_order_relaxed);
    const Slot slot = collectives_kept + turn % transfers_kept;
    auto& entry = entries_[slot];
    auto progress = entry.progress.load(std::memory_order_acquire);
    if (state_of(progress) == State::started || state_of(progress) == State::submitted) continue;
    // Reserves the slot for this thread: it is neither free nor in progress.
    if (!entry.progress.compare_exchange_strong(progress, progress_now(State::submitted), std::memory_order_acq_rel))
      continue;
    write(entry, operation, number, timeout, State::started);
    return slot;
  }
  return no_slot;
}

// The slot is not reused before the operation has ended.
void OperationLog::record_time(Slot slot) {
  const auto began = entries_[slot].began.exchange(0, std::memory_order_relaxed);
  if (began == 0) return;
  const auto entry = read(slot);
  if (entry) times_.add(entry->operation, Clock::now().time_since_epoch() - Clock::duration(began));
}

void OperationLog::end(Slot slot, bool failed) {
  if (slot == no_slot) return;
  if (slot < collectives_kept && !failed) record_time(slot);
  entries_[slot].progress.store(progress_now(failed ? State::failed : State::done), std::memory_order_release);
}

std::optional<OperationLog::Entry> OperationLog::read(Slot slot) const {
  if (slot == no_slot) return std::nullopt;
  const auto& stored = entries_[slot];
  for (int attempt = 0; attempt < read_attempts; ++attempt) {
    const auto version = stored.version.load(std::memory_order_acquire);
    if (version == 0) return std::nullopt;
    std::array<std::uint64_t, operation_words> words;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = stored.operation[i].load(std::memory_order_acquire);
    const auto sequence = stored.sequence.load(std::memory_order_acquire);
    const std::chrono::milliseconds timeout(stored.timeout.load(std::memory_order_acquire));
    const auto progress = stored.progress.load(std::memory_order_acquire);
    if (version % 2 != 0 || stored.version.load(std::memory_order_relaxed) != version) continue;
    Operation operation;
    std::memcpy(static_cast<void*>(&operation), words.data(), sizeof(operation));
    return Entry{operation, sequence, timeout, state_of(progress),
                 Clock::time_point(std::chrono::nanoseconds(progress >> state_bits))};
  }
  return std::nullopt;
}

// Collectives may end in any order.
std::optional<std::uint64_t> OperationLog::oldest_in_progress() const {
  const auto begun = begun_.load(std::memory_order_acquire);
  for (auto sequence = begun - std::min<std::uint64_t>(begun, most_in_progress); sequence < begun; ++sequence) {
    const auto& stored = entries_[sequence % collectives_kept];
    if (state_of(stored.progress.load(std::memory_order_acquire)) == State::started) return sequence;
  }
  return std::nullopt;
}

std::optional<OperationLog::Entry> OperationLog::collective(std::uint64_t sequence) const {
  auto entry = read(sequence % collectives_kept);
  if (entry && entry->sequence != sequence) entry.reset();
  return entry;
}

std::optional<OperationLog::Entry> OperationLog::current() const {
  const auto begun = begun_.load(std::memory_order_acquire);
  if (begun == 0) return std::nullopt;
  return read(oldest_in_progress().value_or(begun - 1) % collectives_kept);
}

std::uint64_t OperationLog::sequence() const {
  return oldest_in_progress().value_or(begun_.load(std::memory_order_acquire));
}

std::vector<OperationLog::Entry> OperationLog::collectives(std::uint64_t first, std::size_t count) const {
  std::vector<Entry> entries;
  for (auto sequence = first; sequence < first + count; ++sequence) {
    if (const auto entry = collective(sequence)) entries.push_back(*entry);
  }
  return entries;
}

}  // namespace ddprun::comm
