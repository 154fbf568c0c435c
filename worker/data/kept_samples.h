#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

namespace ddprun::data {

// Generated samples, each made when it is first asked for and kept. Memory is used up only by those that were made: the
// memory of the others is not touched. Several threads may make the same sample at once; the first to claim its place
// keeps it. Thread-safe.
template <class Sample>
class KeptSamples {
  static_assert(std::is_trivially_copyable_v<Sample>);

 public:
  explicit KeptSamples(std::int64_t size)
      : states_(static_cast<std::size_t>(size)),
        samples_(std::make_unique_for_overwrite<std::byte[]>(states_.size() * sizeof(Sample))) {}

  // make: a function without arguments, which gives the same sample every time.
  template <class Make>
  Sample get(std::int64_t index, const Make& make) const {
    auto& state = states_[static_cast<std::size_t>(index)];
    std::byte* place = &samples_[static_cast<std::size_t>(index) * sizeof(Sample)];
    Sample sample;
    if (state.load(std::memory_order_acquire) == State::ready) {
      std::memcpy(&sample, place, sizeof(Sample));
      return sample;
    }
    sample = make();
    auto expected = State::missing;
    if (state.compare_exchange_strong(expected, State::writing, std::memory_order_acquire)) {
      std::memcpy(place, &sample, sizeof(Sample));
      state.store(State::ready, std::memory_order_release);
    }
    return sample;
  }

 private:
  enum class State : std::uint8_t { missing, writing, ready };

  mutable std::vector<std::atomic<State>> states_;
  const std::unique_ptr<std::byte[]> samples_;
};

}  // namespace ddprun::data
