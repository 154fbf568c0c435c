#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "tests/simulation/election_process.h"
#include "tests/simulation/succession_schedule.h"
#include "tests/simulation/virtual_time.h"
#include "tests/support/random_source.h"

namespace ddprun::testing::election {

inline constexpr std::chrono::seconds faults_end{12};
inline constexpr std::chrono::seconds schedule_end{24};

// The processes of a job, the network between them, the faults, and what must hold.
class Job {
 public:
  explicit Job(const SuccessionOptions& options) : options_(options), random(options.seed) {}

  SuccessionOutcome run();
  void send(const std::string& from, const std::string& to, Message message);
  void probe(const std::string& from, const std::string& to);
  void decided(const Process& server);
  void confirmed(const Process& server, ElectorateVersion version);
  void began(const Process& server);
  void deposed(const Process& server);
  void gave_up(const Process& node);
  // Elected servers announce themselves at the endpoint.
  std::optional<ServerName> server_at_endpoint();
  // Returns whether no server lives, and no election can succeed. A server that is started then begins another job, as
  // far as elections are concerned.
  bool may_serve_afresh();
  void began_afresh(const Process& server);
  void gathers_too_long(const Process& server) { broke(fmt::format("{} gathers nodes for too long", server.id)); }
  void refused(const Process& server) { broke(fmt::format("{} does not follow its own server", server.id)); }

  template <class... Args>
  void note(std::string_view who, fmt::format_string<Args...> format, Args&&... args) {
    if (!options_.trace) return;
    const std::chrono::duration<double> since = time.now() - began_at_;
    fmt::print("{:9.4f} {:<4} {}\n", since.count(), who, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void start(const std::string& id, std::optional<ServerName> target);
  void schedule_ticks(const std::string& id);
  void schedule_fault();
  void inject_fault();
  void crash(Process& victim);
  void freeze(Process& victim);
  void cut();
  void add_node();
  bool faulty() const { return time.now() - began_at_ < faults_end; }
  bool reachable(const std::string& a, const std::string& b) const { return a == b || side(a) == side(b); }
  int side(const std::string& id) const { return sides_.contains(id) ? sides_.at(id) : 0; }
  Process* some(const std::function<bool(Process&)>& which);
  void deliver(const std::string& to, std::function<void(Process&)> what);
  void check_end();
  void broke(std::string text) { outcome_.broken.push_back(std::move(text)); }

  const SuccessionOptions options_;
  std::map<std::string, std::unique_ptr<Process>> processes_;
  std::map<std::string, int> sides_;              // of the partition
  std::map<std::uint64_t, std::string> servers_;  // that have decided, by term
  ElectorateVersion last_confirmed_;
  int started_ = 0;
  SuccessionOutcome outcome_;

 public:
  VirtualTime time;
  RandomSource random;

 private:
  const Time began_at_ = time.now();
};

}  // namespace ddprun::testing::election
