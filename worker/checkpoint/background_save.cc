#include "worker/checkpoint/background_save.h"

#include <utility>

#include "worker/checkpoint/helper_thread.h"

namespace ddprun::checkpoint {

BackgroundSave::BackgroundSave(std::shared_ptr<Snapshot> snapshot, std::shared_ptr<const void> memory,
                               std::function<void(const Content& content)> write)
    : snapshot_(std::move(snapshot)) {
  auto task = std::make_shared<std::packaged_task<Clock::time_point()>>(
      [snapshot = snapshot_, memory = std::move(memory), write = std::move(write)] {
        snapshot->copy_rest();  // at the run's own priority: its next update waits for the copy
        snapshot->wait();
        take_low_priority();
        write(snapshot->content());
        return Clock::now();
      });
  ended_ = task->get_future();
  thread_ = start_helper_thread("saves a checkpoint", [task] { (*task)(); });
}

BackgroundSave::~BackgroundSave() {
  thread_.join();
}

void BackgroundSave::complete_copy() {
  snapshot_->copy_rest();
  snapshot_->wait();
}

}  // namespace ddprun::checkpoint
