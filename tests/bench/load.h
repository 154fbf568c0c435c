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
  std::size_t reply_bytes = 0;  // 0: one line, however long
  bool timed = true;            // counts for the operation's latency
  bool by_notifier = false;     // the request goes out on a connection of its own, the reply comes on this one
};
using Operation = std::vector<Step>;

struct LoadOptions {
  std::string host;
  std::uint16_t port = 0;
  int connections = 1;
  std::string greeting;  // what each connection says first; it has no reply
};

struct LoadResult {
  std::size_t operations = 0;
  std::chrono::duration<double> elapsed{};
  Latencies latencies;

  double ops_per_s() const { return elapsed.count() > 0 ? static_cast<double>(operations) / elapsed.count() : 0; }
  // Another run of the same.
  void add(const LoadResult& other);
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
  // requests[i] over connection i without waiting for anything, a system call each, for that long; then `last`, whose
  // reply of that many bytes comes when the server has taken all before it.
  LoadResult stream(const std::vector<std::string>& requests, std::chrono::duration<double> duration, const Step& last);

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
