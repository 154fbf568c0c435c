#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::bench {

struct TorchFigures {
  double ops_per_s = 0, p50_us = 0, p99_us = 0;  // no latencies for what has no answer
};

// A store under TCPStore's own Python client, a process a connection, for the Python that DDPRUN_TORCH_PYTHON names.
// op: "set" (unanswered, as it is there: the rate until the server has taken all in), "get", "add".
class TorchStore {
 public:
  // Whether a Python is named; if not, that is said on standard error.
  static bool available();
  // port: of the server at 127.0.0.1; 0: a TCPStore of its own. None when it fails; why is said on standard error.
  static std::optional<TorchFigures> measure(const std::string& op, int connections, std::size_t value_bytes,
                                             double seconds, std::uint16_t port = 0);
};

}  // namespace ddprun::bench
