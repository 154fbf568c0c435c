#pragma once

#include <compare>
#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/commands/dry_step.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// The dry steps of one job with different layouts. Layouts of pipelines with different lengths are computed from the
// same few steps (scaled_stages.h): each of them is run once.
//
// Ownership: refers to samples and registry. Threads: any. Errors: those of dry_step(), at each call for that step.
class DrySteps {
 public:
  DrySteps(const data::SampleLayout& samples, const plugin::Registry& registry)
      : samples_(samples), registry_(registry) {}

  // Returns dry_step() of the job. REQUIRES: its settings are those of the other calls, but for the layout, the
  // samples of a step and the number of blocks.
  RankUse of(const TrainConfig& config, int ranks, int rank);
  const plugin::Registry& registry() const { return registry_; }

 private:
  // The settings that may differ between two calls.
  struct Key {
    std::vector<std::int64_t> numbers;
    std::string split;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const TrainConfig& config, int ranks, int rank);

  const data::SampleLayout& samples_;
  const plugin::Registry& registry_;
  std::mutex mutex_;
  std::map<Key, std::shared_future<RankUse>> known_;
};

}  // namespace ddprun::trainer
