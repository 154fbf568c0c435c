#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// The transport between the i-th leaders of all hosts, with threads of its own, so that it works while the ranks of a
// host exchange data. Owns the transport; thread-safe. Posted tasks begin in order; up to two are in progress, so that
// the network is not idle while one waits for its peers. The first failure cancels all tasks that have not begun.
class Rail {
 public:
  using Task = std::function<void(Transport&)>;

  explicit Rail(std::shared_ptr<Transport> transport);
  ~Rail();  // drops the tasks that have not begun

  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }
  // Returns the number of tasks posted so far.
  std::uint64_t post(Task task);
  // Waits until that many tasks are done, in the order of posting. Rethrows the first failure.
  void await(std::uint64_t tasks);
  // Interrupts the transport, drops the tasks that have not begun, and returns once none is in progress.
  void stop() noexcept;

 private:
  void work();
  bool done(std::uint64_t tasks) const;
  bool idle() const { return running_.empty() && tasks_.empty(); }

  const std::shared_ptr<Transport> transport_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::uint64_t posted_ = 0;
  std::uint64_t begun_ = 0;
  std::vector<std::uint64_t> running_;  // numbers of the tasks in progress, counted from 1
  bool closed_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;  // last, as they use all members above
};

}  // namespace ddprun::comm
