#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace ddprun::comm {

// The processor on which a rank ran last, by its own account, in memory shared by processes. Zeroed memory is a
// processor that is not known.
class LastProcessor {
 public:
  // Records the calling thread's processor and returns it. Only the owner calls it.
  int record();
  // Returns it by the kernel's number.
  std::optional<int> number() const;

 private:
  std::atomic<std::uint32_t> number_plus_one_;
};

}  // namespace ddprun::comm
