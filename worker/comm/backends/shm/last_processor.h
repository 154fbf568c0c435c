#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace ddprun::comm {

// The processor on which a rank ran when it last waited for some time, in memory shared by processes. Zeroed memory is
// a processor that is not known.
class LastProcessor {
 public:
  // Records the calling thread's processor. Only the owner calls it; any of its threads.
  void record();
  // Returns it by the kernel's number.
  std::optional<int> number() const;

 private:
  std::atomic<std::uint32_t> number_plus_one_;
};

}  // namespace ddprun::comm
