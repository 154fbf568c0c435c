#include "ddprun/worker/comm/health/freeze_detector.h"

namespace ddprun::comm {

void FreezeDetector::look(std::optional<std::uint64_t> beats, Clock::time_point now) {
  const bool looked_away = now - last_look_ >= bound_ / 2;
  if (!beats || beats != beats_ || looked_away) since_ = now;
  beats_ = beats;
  last_look_ = now;
}

}  // namespace ddprun::comm
