#include "worker/trainer/commands/computed_layouts.h"

#include <atomic>
#include <system_error>
#include <thread>

#include "common/blocked_signals.h"

namespace ddprun::trainer {

std::vector<LayoutStep> compute_all(std::size_t count,
                                    const std::function<std::optional<ComputedStep>(std::size_t index)>& compute) {
  std::vector<std::packaged_task<std::optional<ComputedStep>(std::size_t)>> tasks;
  std::vector<LayoutStep> steps;
  for (std::size_t i = 0; i < count; ++i) steps.push_back(tasks.emplace_back(compute).get_future());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = 0; (i = next++) < count;) tasks[i](i);
  };
  std::vector<std::thread> others;
  try {
    for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t) others.push_back(start_signal_free_thread(work));
  } catch (const std::system_error&) {
    // with fewer threads it takes longer
  }
  work();
  for (auto& thread : others) thread.join();
  return steps;
}

}  // namespace ddprun::trainer
