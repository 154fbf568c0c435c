#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/common/unique_fd.h"
#include "tests/bench/latency.h"

namespace ddprun::bench {

// A request and the size of its reply.
struct Step {
  std::string request;
  std::size_t reply_bytes = 0;
  bool timed = true;         // counts for the operation's latency
  bool by_notifier = false;  // the request goes out on a connection of its own, the reply comes on this one
};
using Operation = std::vector<Step>;

struct LoadOptions {
  std::string host;
  std::uint16_t port = 0;
  int connections = 1;
  std::string greeting;  // what each connection says first; it has no reply
};

struct LoadResult {
  double ops_per_s = 0;
  Latencies latencies;
};

// Clients of one server, driven by the calling thread alone as redis-benchmark does it: each has one operation under
// way and begins the next as soon as it has ended. Errors as tcp_socket.h; a reply that takes 10 s is Errc::timeout.
class Load {
 public:
  explicit Load(const LoadOptions& options);

  // One operation over one connection, the others idle.
  void run_once(int connection, const Operation& operation);
  // operations[i] over connection i, again and again, for that long.
  LoadResult run(const std::vector<Operation>& operations, std::chrono::duration<double> duration);

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
    UniqueFd fd;
    std::size_t step = 0;
    std::size_t received = 0;  // of the step's reply
    Clock::time_point started;
    Clock::duration timed{};  // of the operation so far
  };

  void send(Client& client, const Step& step);
  // Reads what is there; true when the operation has ended.
  bool advance(Client& client, const Operation& operation);

  std::vector<Client> clients_;
  UniqueFd notifier_;
  UniqueFd epoll_;
};

}  // namespace ddprun::bench
