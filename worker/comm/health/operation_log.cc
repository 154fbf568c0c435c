#include "ddprun/worker/comm/health/operation_log.h"

#include <cstring>
#include <ctime>

namespace ddprun::comm {
namespace {

constexpr std::uint64_t state_bits = 3;
constexpr int read_attempts = 100;

// The monotonic clock as of the kernel's last tick: a few milliseconds late, at a fraction of the price.
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

// The content goes between two versions. Each store releases, each load of read() acquires: so a reader that saw a word
// of the new content sees the odd version before it too. Nothing is put together in memory first: what is written in
// small parts and read in larger ones waits for the stores before it, and this follows the announcement of a call.
[[gnu::always_inline]] inline void OperationLog::write(Slot& slot, const Operation& operation, std::uint64_t sequence,
                                                       std::chrono::milliseconds timeout, State state) {
  std::array<std::uint64_t, operation_words> words;
  std::memcpy(words.data(), &operation, sizeof(operation));
  const auto version = slot.version.load(std::memory_order_relaxed);
  slot.version.store(version + 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < words.size(); ++i) slot.operation[i].store(words[i], std::memory_order_release);
  slot.sequence.store(sequence, std::memory_order_release);
  slot.timeout.store(timeout.count(), std::memory_order_release);
  slot.progress.store(progress_now(state), std::memory_order_release);
  slot.version.store(version + 2, std::memory_order_release);
}

void OperationLog::submit(const Operation& operation, std::uint64_t sequence, std::chrono::milliseconds timeout) {
  auto& slot = slots_[sequence % collectives_kept];
  const auto state = state_of(slot.progress.load(std::memory_order_acquire));
  if (state == State::submitted || state == State::started) return;  // an earlier one still has the place
  write(slot, operation, sequence, timeout, State::submitted);
}

OperationLog::Place OperationLog::begin(const Operation& operation, std::uint64_t sequence,
                                        std::chrono::milliseconds timeout) {
  const Place place = sequence % collectives_kept;
  write(slots_[place], operation, sequence, timeout, State::started);
  begun_.store(sequence + 1, std::memory_order_release);
  return place;
}

OperationLog::Place OperationLog::begin_transfer(const Operation& operation, std::uint64_t number,
                                                 std::chrono::milliseconds timeout) {
  for (std::size_t tries = 0; tries < transfers_kept; ++tries) {
    const auto turn = transfers_.fetch_add(1, std::memory_order_relaxed);
    const Place place = collectives_kept + turn % transfers_kept;
    auto& slot = slots_[place];
    auto progress = slot.progress.load(std::memory_order_acquire);
    if (state_of(progress) == State::started || state_of(progress) == State::submitted) continue;
    // Submitted for a moment: the place is this thread's, and nobody else's.
    if (!slot.progress.compare_exchange_strong(progress, progress_now(State::submitted), std::memory_order_acq_rel))
      continue;
    write(slot, operation, number, timeout, State::started);
    return place;
  }
  return nowhere;
}

void OperationLog::end(Place place, bool failed) {
  if (place == nowhere) return;
  slots_[place].progress.store(progress_now(failed ? State::failed : State::done), std::memory_order_release);
}

std::optional<OperationLog::Entry> OperationLog::read(Place place) const {
  if (place == nowhere) return std::nullopt;
  const auto& slot = slots_[place];
  for (int attempt = 0; attempt < read_attempts; ++attempt) {
    const auto version = slot.version.load(std::memory_order_acquire);
    if (version == 0) return std::nullopt;
    std::array<std::uint64_t, operation_words> words;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = slot.operation[i].load(std::memory_order_acquire);
    const auto sequence = slot.sequence.load(std::memory_order_acquire);
    const std::chrono::milliseconds timeout(slot.timeout.load(std::memory_order_acquire));
    const auto progress = slot.progress.load(std::memory_order_acquire);
    if (version % 2 != 0 || slot.version.load(std::memory_order_relaxed) != version) continue;
    Operation operation;
    std::memcpy(static_cast<void*>(&operation), words.data(), sizeof(operation));
    return Entry{operation, sequence, timeout, state_of(progress),
                 Clock::time_point(std::chrono::nanoseconds(progress >> state_bits))};
  }
  return std::nullopt;
}

// Begun ones may have ended in any order.
std::optional<std::uint64_t> OperationLog::oldest_in_progress() const {
  const auto begun = begun_.load(std::memory_order_acquire);
  for (auto sequence = begun - std::min<std::uint64_t>(begun, most_in_progress); sequence < begun; ++sequence) {
    const auto& slot = slots_[sequence % collectives_kept];
    if (state_of(slot.progress.load(std::memory_order_acquire)) == State::started) return sequence;
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
