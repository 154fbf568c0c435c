#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

namespace ddprun::checkpoint {

// Tells a slow disk, which answers one request after the other, from one that never answers, such as that of a file
// server that is gone: a thread that waits for it cannot be interrupted, so another one has to wait for that thread.
// Time in which the process is stopped (SIGSTOP) hardly counts.
//
// Threads: any number. Errors: Errc::io naming the request that was not answered in time; from then on at every call.
class DiskWatch {
 public:
  DiskWatch() = default;
  virtual ~DiskWatch() = default;
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

  // Names what this thread asks the disk for next, such as "write /ckpt/model": what it asked for before is answered.
  // read: reads memory of the caller of run() before the request; the act is not abandoned meanwhile.
  void request(std::string what, const std::function<void()>& read = {});

  // Does an act of a number of requests on a thread of its own, and returns its result, or throws its error. If the
  // disk does not answer one of them for so long, the act is abandoned: its thread ends after its request, if ever. So
  // the act shares the ownership of all that it uses, except memory that it only passes to the disk, or reads as
  // request() says. limit 0: the act is done on this thread, and takes any time. One act at a time.
  template <class Act>
  static std::invoke_result_t<Act> run(const std::shared_ptr<DiskWatch>& watch, std::chrono::milliseconds limit,
                                       Act act) {
    if (limit.count() == 0) return act();
    const auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Act>()>>(std::move(act));
    auto result = task->get_future();
    watch->run_on_thread([task] { (*task)(); }, watch, limit);
    return result.get();
  }

 protected:
  // Waits until the act has ended, at most for this time. Tests have their own, to decide how time passes.
  virtual void wait_for_end(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds time);

 private:
  void run_on_thread(std::function<void()> act, std::shared_ptr<DiskWatch> self, std::chrono::milliseconds limit);
  [[noreturn]] void refuse() const;

  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_running_ = false;
  std::string what_;                              // the request under way
  std::uint64_t requests_ = 0;                    // their number so far
  std::chrono::milliseconds abandoned_after_{0};  // 0: no act is
};

}  // namespace ddprun::checkpoint
