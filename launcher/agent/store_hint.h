#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <sys/types.h>

#include "common/timer.h"
#include "launcher/workers/connect_watch.h"

namespace ddprun {

// Notices a worker that runs PyTorch and waits for a store of its script's own: with TORCHELASTIC_USE_AGENT_STORE=True
// PyTorch before 2.15 makes every rank of a process group with init_method="tcp://..." a client, so that nobody serves
// that address, and tries to connect to it for half an hour without a message. Looks at the workers' sockets in the
// first minutes of a round, and logs one line about it.
//
// Ownership: owns its timer; the loop must outlive it. Threads: single-threaded on the loop, which calls the handlers.
// Errors: none thrown; where the kernel does not show a process's sockets, nothing is logged.
class StoreHint {
 public:
  struct Handlers {
    std::function<std::map<int, pid_t>()> running;  // the workers by rank
    std::function<void(int rank, pid_t process)> waits;
  };

  StoreHint(boost::asio::io_context& loop, Handlers handlers);
  ~StoreHint() { stop(); }
  StoreHint(const StoreHint&) = delete;
  StoreHint& operator=(const StoreHint&) = delete;

  // The workers of a round have been started.
  void start();
  void stop();

 private:
  void look_later();
  void look();

  Timer timer_;
  Handlers handlers_;
  std::chrono::steady_clock::time_point until_;
  std::map<pid_t, ConnectWatch> watches_;
  bool watching_ = false;
};

// The line about such a worker. store is host:port of the workers' store.
std::string store_hint_text(int rank, pid_t process, const std::string& store);

}  // namespace ddprun
