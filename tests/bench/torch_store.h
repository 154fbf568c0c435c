#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::bench {

struct TorchFigures {
  double ops_per_s = 0, p50_us = 0, p99_us = 0;  // no latencies for requests without an answer
};

// A store under TCPStore's own Python client, one process per connection, for the Python that DDPRUN_TORCH_PYTHON
// names. op is "set" (unanswered, as in TCPStore: the rate until the server has received all), "get" or "add".
class TorchStore {
 public:
  // Returns whether a Python is named; if not, prints that on standard error.
  static bool available();
  // port is that of the server at 127.0.0.1, 0 for a TCPStore of its own. Returns nullopt and prints why if it fails.
  static std::optional<TorchFigures> measure(const std::string& op, int connections, std::size_t value_bytes,
                                             double seconds, std::uint16_t port = 0);
};

}  // namespace ddprun::bench
