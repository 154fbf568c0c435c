#include "worker/profiler/step_times.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ddprun::profiler {
namespace {

constexpr std::pair<Phase, const char*> names[] = {
    {&StepTimes::data, "data"},          {&StepTimes::upload, "upload"},       {&StepTimes::forward, "forward"},
    {&StepTimes::backward, "backward"},  {&StepTimes::optimizer, "optimizer"}, {&StepTimes::start, "start of sums"},
    {&StepTimes::wait, "wait for sums"},
};

}  // namespace

const char* name_of(Phase phase) {
  const auto* const found =
      std::find_if(std::begin(names), std::end(names), [&](const auto& each) { return each.first == phase; });
  return found->second;
}

}  // namespace ddprun::profiler
