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

#include "ddprun/worker/comm/execution/transport.h"

namespace ddprun::comm {

// The transport between the leaders of one rank within their hosts, with threads of its own, so that it is at work
// while the ranks of a host exchange. Posted tasks begin one after the other, and a second one goes on where the first
// waits for its peers: so the network is never idle between them. The first that fails ends all.
class Rail {
 public:
  using Task = std::function<void(Transport&)>;

  explicit Rail(std::shared_ptr<Transport> transport);
  ~Rail();  // drops what has not begun

  Transport& transport() { return *transport_; }
  // Returns the number of tasks posted so far.
  std::uint64_t post(Task task);
  // Until the first so many tasks are done. Rethrows the first failure.
  void await(std::uint64_t tasks);
  // Ends everything, and returns once no task is under way.
  void stop() noexcept;

 private:
  void work();
  bool done(std::uint64_t tasks) const;
  bool idle() const { return under_way_.empty() && tasks_.empty(); }

  const std::shared_ptr<Transport> transport_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::uint64_t posted_ = 0;
  std::uint64_t begun_ = 0;
  std::vector<std::uint64_t> under_way_;  // how many had begun with each
  bool closed_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;  // last: they run on all the above
};

}  // namespace ddprun::comm
