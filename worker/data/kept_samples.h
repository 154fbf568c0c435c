#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddprun::data {

// Generated samples, each made when it is first asked for and kept. Lets several threads make the same sample at once;
// the first to claim its place keeps it. Thread-safe.
template <class Sample>
class KeptSamples {
 public:
  explicit KeptSamples(std::int64_t size) : kept_(static_cast<std::size_t>(size)) {}

  // make: a function without arguments, which gives the same sample every time.
  template <class Make>
  Sample get(std::int64_t index, const Make& make) const {
    auto& place = kept_[static_cast<std::size_t>(index)];
    if (place.state.load(std::memory_order_acquire) == State::ready) return place.sample;
    const Sample sample = make();
    auto expected = State::missing;
    if (place.state.compare_exchange_strong(expected, State::writing, std::memory_order_acquire)) {
      place.sample = sample;
      place.state.store(State::ready, std::memory_order_release);
    }
    return sample;
  }

 private:
  enum class State : std::uint8_t { missing, writing, ready };
  struct Kept {
    std::atomic<State> state{State::missing};
    Sample sample;
  };

  mutable std::vector<Kept> kept_;
};

}  // namespace ddprun::data
