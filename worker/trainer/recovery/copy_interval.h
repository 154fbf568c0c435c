#pragma once

#include <cstdint>

namespace ddprun::trainer {

// Decides after which steps ranks keep copies of their parts of the state, so that this takes at most 2 % of the time:
// the interval is that of the last copies' cost and of the steps since. No clock: times are passed in, the same at all
// ranks, which so decide alike.
//
// A value. Threads: not thread-safe. Errors: none.
class CopyInterval {
 public:
  // To be called when copies after a step have been kept. copying: the time that they have taken; steps: that of all
  // steps since the last ones, 0 if there were none. Both in seconds.
  void copies_kept(std::int64_t step, double copying, double steps);
  bool is_due(std::int64_t step) const { return step >= due_; }

 private:
  std::int64_t last_ = 0;
  std::int64_t due_ = 0;
  double previous_ = 0;  // the time that the copies before have taken
};

}  // namespace ddprun::trainer
