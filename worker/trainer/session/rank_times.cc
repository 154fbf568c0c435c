#include "worker/trainer/session/rank_times.h"

#include <array>
#include <utility>

namespace ddprun::trainer {
namespace {

constexpr std::array fields{&StepTimes::data,      &StepTimes::upload, &StepTimes::forward, &StepTimes::backward,
                            &StepTimes::optimizer, &StepTimes::start,  &StepTimes::wait};

}  // namespace

void RankTimes::step_done(const StepTimes& times) {
  if (!std::exchange(warm_, true)) return;
  own_ += times;
  ++steps_;
}

void RankTimes::restart() {
  warm_ = false;
  own_ = {};
  steps_ = 0;
}

void RankTimes::append_to(std::vector<double>& addends) {
  if (size_ == 1 || steps_ < window) return;
  appended_at_ = addends.size();
  addends.resize(addends.size() + fields.size() * static_cast<std::size_t>(size_));
  auto slot = appended_at_ + fields.size() * static_cast<std::size_t>(rank_);
  for (const auto field : fields) addends[slot++] = (own_.*field).count();
  own_ = {};
  steps_ = 0;
}

std::vector<StepTimes> RankTimes::take_from(const std::vector<double>& sums) {
  std::vector<StepTimes> ranks;
  auto slot = std::exchange(appended_at_, 0);
  if (slot == 0) return ranks;
  ranks.resize(static_cast<std::size_t>(size_));
  for (auto& times : ranks)
    for (const auto field : fields) times.*field = profiler::Seconds(sums[slot++]);
  return ranks;
}

}  // namespace ddprun::trainer
