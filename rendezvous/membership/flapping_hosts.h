#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <string>

namespace ddprun {

// Detects hosts whose nodes join and leave repeatedly; each time costs every other node two rounds. Counts the
// consecutive short stays of a host's nodes, and blocks the host when there were too many.
//
// A value of bounded size; times are passed in. Threads: not thread-safe. Errors: none.
class FlappingHosts {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    std::chrono::milliseconds short_stay{std::chrono::minutes(1)};
    int max_short_stays = 5;  // per node, for the highest number of nodes that the host has had at one time
    std::chrono::milliseconds quiet_period{std::chrono::minutes(10)};  // without a short stay; it resets the count
  };

  explicit FlappingHosts(Options options) : options_(options) {}

  // A node of this host has joined.
  void joined(const std::string& host) {
    Stays& row = rows_[host];
    row.most_nodes = std::max(row.most_nodes, ++row.nodes);
  }
  // A node that joined at the time `joined` has left. `needs_round`: its departure costs the others a new round.
  void left(Time now, const std::string& host, Time joined, bool needs_round) {
    Stays& row = rows_[host];
    --row.nodes;
    const bool short_stay = now - joined < options_.short_stay;
    if (!short_stay || now - row.last >= options_.quiet_period) row.short_stays = 0;
    if (short_stay && needs_round) {
      ++row.short_stays;
      row.last = now;
    }
    if (row.nodes == 0 && (row.short_stays == 0 || rows_.size() > max_hosts)) rows_.erase(host);
  }

  // Returns whether nodes of this host are to be refused now.
  bool is_blocked(Time now, const std::string& host) const {
    const auto row = rows_.find(host);
    return row != rows_.end() && row->second.short_stays > options_.max_short_stays * row->second.most_nodes &&
           now - row->second.last < options_.quiet_period;
  }
  // The consecutive short stays, for messages.
  int short_stays(const std::string& host) const {
    const auto row = rows_.find(host);
    return row == rows_.end() ? 0 : row->second.short_stays;
  }

 private:
  static constexpr std::size_t max_hosts = 65536;
  struct Stays {
    int nodes = 0;
    int most_nodes = 0;
    int short_stays = 0;
    Time last{};  // the time of the last short stay
  };
  Options options_;
  std::map<std::string, Stays> rows_;
};

}  // namespace ddprun
