#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "common/host_port.h"

namespace ddprun {

// Where the servers of jobs are that have been elected elsewhere and have announced themselves here. A value.
class MovedServers {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Elected servers announce themselves at the endpoint more often.
  static constexpr std::chrono::seconds announcement_lasts{4};

  void announced(Time now, const std::string& run_id, const HostPort& address) {
    moved_[run_id] = {address, now + announcement_lasts};
  }
  // Returns where nodes of the job are to be sent; nullopt: they are to stay.
  std::optional<HostPort> address(Time now, const std::string& run_id) {
    const auto found = moved_.find(run_id);
    if (found == moved_.end()) return std::nullopt;
    if (now < found->second.until) return found->second.address;
    moved_.erase(found);
    return std::nullopt;
  }

 private:
  struct Moved {
    HostPort address;
    Time until{};
  };
  std::map<std::string, Moved> moved_;  // by run id
};

}  // namespace ddprun
