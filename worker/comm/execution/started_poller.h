#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

namespace ddprun::comm {

// A thread that looks at operations in progress for which no other thread waits, since their failures and timeouts have
// to be noticed too. All groups of a process whose polls wait for no other rank share one. Thread-safe.
class StartedPoller {
 public:
  using Function = std::function<void()>;

  // Returns the one of this process. Its thread exists as long as somebody has it.
  static std::shared_ptr<StartedPoller> of_process(const Function& begin);
  // Its thread begins with a call of begin, which has returned by then.
  explicit StartedPoller(const Function& begin);
  ~StartedPoller();
  StartedPoller(const StartedPoller&) = delete;
  StartedPoller& operator=(const StartedPoller&) = delete;

  // Calls poll every 50 ms while it exists. Its destructor returns once no call is in progress.
  class Registration {
   public:
    Registration(std::shared_ptr<StartedPoller> poller, Function poll);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    const std::shared_ptr<StartedPoller> poller_;
    std::list<Function>::iterator place_;
  };

 private:
  void run();
  void poll_all(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::list<Function> polls_;
  std::list<Function>::iterator called_ = polls_.end();  // the poll in progress
  bool begun_ = false, closing_ = false;
  std::thread thread_;  // last, as it uses all members above
};

}  // namespace ddprun::comm
