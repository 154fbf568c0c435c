#include "worker/checkpoint/background_save.h"

#include <sys/resource.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"

namespace ddprun::checkpoint {
namespace {

// A thread of this priority gets a tenth of a busy processor: training goes before it, and the save ends nevertheless.
// On Linux the priority is that of the calling thread alone, and cannot be raised again.
void take_low_priority() {
  constexpr int low = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), low);
}

std::thread start_thread(std::function<void()> body) {
  try {
    return start_signal_free_thread(std::move(body));
  } catch (const std::system_error& error) {
    throw make_error(Errc::io, "cannot start the thread that saves a checkpoint: {}", error.what());
  }
}

}  // namespace

BackgroundSave::BackgroundSave(std::shared_ptr<Snapshot> snapshot, std::shared_ptr<const void> memory,
                               std::function<void(const Content& content)> write)
    : snapshot_(std::move(snapshot)) {
  auto task = std::make_shared<std::packaged_task<Clock::time_point()>>(
      [snapshot = snapshot_, memory = std::move(memory), write = std::move(write)] {
        take_low_priority();
        snapshot->copy_rest();
        snapshot->wait();
        write(snapshot->content());
        return Clock::now();
      });
  ended_ = task->get_future();
  thread_ = start_thread([task] { (*task)(); });
}

BackgroundSave::~BackgroundSave() {
  thread_.join();
}

void BackgroundSave::complete_copy() {
  snapshot_->copy_rest();
  snapshot_->wait();
}

}  // namespace ddprun::checkpoint
