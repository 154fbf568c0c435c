#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tests/bench/load.h"
#include "tests/bench/process.h"

namespace ddprun::bench {

// A redis-server of its own, only in memory, on a free port of the loopback interface.
class Redis {
 public:
  // Returns null when there is no redis-server on PATH, or it does not start; the reason is printed on standard error.
  static std::unique_ptr<Redis> start();

  std::uint16_t port() const { return port_; }

  // The counterparts of the store's operations, in redis' own protocol.
  static Operation set(const std::string& key, const std::string& value);
  static Operation get(const std::string& key, std::size_t value_bytes);
  static Operation add(const std::string& key);

 private:
  Redis(Process process, std::uint16_t port) : process_(std::move(process)), port_(port) {}

  Process process_;
  const std::uint16_t port_;
};

}  // namespace ddprun::bench
