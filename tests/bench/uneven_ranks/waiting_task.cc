// A plugin: a task that takes a given time for each sample, like a device of that speed, and longer at one rank. It
// waits rather than computes, so that there can be more ranks than processors; or the slow rank joins a control
// group.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <unistd.h>

#include "worker/plugin/plugin.h"

using namespace ddprun;

namespace {

bool at_rank(std::int64_t rank) {
  const char* own = std::getenv("RANK");
  return own && std::to_string(rank) == own;
}

class WaitingTask : public tasks::Task {
 public:
  WaitingTask(const tasks::TaskOptions& options, std::chrono::microseconds a_sample)
      : task_(tasks::make_task("auto", options)), a_sample_(a_sample) {}
  std::int64_t outputs() const override { return task_->outputs(); }
  tasks::WeightedLoss loss(const tasks::Forward& model, const data::Batch& batch) const override {
    std::this_thread::sleep_for(a_sample_ * batch.size());
    return task_->loss(model, batch);
  }

 private:
  const std::unique_ptr<tasks::Task> task_;
  const std::chrono::microseconds a_sample_;
};

}  // namespace

extern "C" void ddprun_register(plugin::Registry& registry) {
  const auto sample = registry.setting<std::int64_t>("waiting.sample_us", 0, {.help = "time of a sample", .min = 0});
  const auto slow = registry.setting<std::int64_t>("waiting.slow_us", 0, {.help = "at the slow rank", .min = 0});
  const auto rank = registry.setting<std::int64_t>("waiting.slow_rank", 0, {.help = "which one that is", .min = 0});
  const auto group =
      registry.setting<std::string>("waiting.control_group", "", {.help = "cgroup.procs that the slow rank joins"});
  registry.tasks.add("waiting", [=](const tasks::TaskOptions& options) {
    if (at_rank(*rank) && !group->empty()) std::ofstream(*group) << ::getpid();
    return std::make_unique<WaitingTask>(options, std::chrono::microseconds(at_rank(*rank) ? *slow : *sample));
  });
}
