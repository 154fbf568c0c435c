#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "tests/bench/latency.h"

namespace ddprun::bench {

// A request and the size of its reply.
struct Step {
  std::string request;
  std::size_t reply_bytes = 0;  // 0: one line, however long
  bool timed = true;            // counts for the operation's latency
  bool by_notifier = false;     // the request goes out on a connection of its own, the reply arrives on this one
};
using Operation = std::vector<Step>;

struct LoadOptions {
  std::string host;
  std::uint16_t port = 0;
  int connections = 1;
  std::string greeting;  // the first bytes of each connection; they have no reply
};

struct LoadResult {
  std::size_t operations = 0;
  std::chrono::duration<double> elapsed{};
  Latencies latencies;

  double ops_per_s() const { return elapsed.count() > 0 ? static_cast<double>(operations) / elapsed.count() : 0; }
  // Adds the result of another run of the same load.
  void add(const LoadResult& other);
};

// Clients of one server, driven only by the calling thread as redis-benchmark does it: each has one operation in
// progress and begins the next once it has ended. Errors: those of tcp_socket.h; Errc::timeout after 10 s.
class Load {
 public:
  explicit Load(const LoadOptions& options);

  // Runs one operation over one connection, while the others are idle.
  void run_once(int connection, const Operation& operation);
  // Runs operations[i] over connection i, again and again, for that long.
  LoadResult run(const std::vector<Operation>& operations, std::chrono::duration<double> duration);
  // Sends requests[i] over connection i without waiting for anything, a system call each, for that long; then `last`,
  // whose reply of that many bytes arrives when the server has received all before it.
  LoadResult stream(const std::vector<std::string>& requests, std::chrono::duration<double> duration, const Step& last);

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
    UniqueFd fd;
    std::size_t step = 0;
    std::size_t received = 0;  // bytes of the step's reply
    Clock::time_point started;
    Clock::duration timed{};  // time of the operation so far
  };

  void send(Client& client, const Step& step);
  // Reads available bytes; returns true when the operation has ended.
  bool advance(Client& client, const Operation& operation);

  std::vector<Client> clients_;
  UniqueFd notifier_;
  UniqueFd epoll_;
};

}  // namespace ddprun::bench
