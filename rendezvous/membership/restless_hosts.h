#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <string>

namespace ddprun {

// Hosts whose nodes join and are gone again, over and over: each time costs all the others two new rounds, and nothing
// else would ever end it. Counts how often in a row nodes of a host left a round soon after they had joined. No clock
// inside. Remembers the hosts that are here and a bounded number of others.
class RestlessHosts {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    std::chrono::milliseconds soon{std::chrono::minutes(1)};
    int most = 5;  // for each node that the host has had at a time
    std::chrono::milliseconds rest{std::chrono::minutes(10)};
  };

  explicit RestlessHosts(Options options) : options_(options) {}

  void joined(const std::string& host) {
    Row& row = rows_[host];
    row.most_nodes = std::max(row.most_nodes, ++row.nodes);
  }
  // A node that joined at that time is gone. `missed`: the others need a new round for it.
  void left(Time now, const std::string& host, Time joined, bool missed) {
    Row& row = rows_[host];
    --row.nodes;
    const bool soon = now - joined < options_.soon;
    if (!soon || now - row.last >= options_.rest) row.count = 0;
    if (soon && missed) {
      ++row.count;
      row.last = now;
    }
    if (row.nodes == 0 && (row.count == 0 || rows_.size() > max_hosts)) rows_.erase(host);
  }

  // Whether the host has done so too often, and not rested since.
  bool turned_away(Time now, const std::string& host) const {
    const auto row = rows_.find(host);
    return row != rows_.end() && row->second.count > options_.most * row->second.most_nodes &&
           now - row->second.last < options_.rest;
  }
  int count(const std::string& host) const {
    const auto row = rows_.find(host);
    return row == rows_.end() ? 0 : row->second.count;
  }

 private:
  static constexpr std::size_t max_hosts = 65536;
  struct Row {
    int nodes = 0;
    int most_nodes = 0;
    int count = 0;
    Time last{};
  };
  Options options_;
  std::map<std::string, Row> rows_;
};

}  // namespace ddprun
