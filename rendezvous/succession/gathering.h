#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "rendezvous/succession/electorate.h"

namespace ddprun {

// How long an elected server waits for nodes that have not come, once it may decide.
struct GatherBounds {
  std::chrono::steady_clock::duration any{};     // of whatever nodes
  std::chrono::steady_clock::duration living{};  // while one of them is known to live, at least `any`
};

// The nodes that have come to an elected server before it decides for the first time. A majority is enough to decide;
// a node that is a moment later than that would lose its worker.
//
// A value. Threads: not thread-safe. Errors: none thrown.
class Gathering {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Gathering(GatherBounds bounds) : bounds_(bounds) {}

  // The node has a session with this server, and has none any more.
  void came(const std::string& node);
  void gone(const std::string& node) { here_.erase(node); }
  // A message that the process of the node has sent since the server was lost. Returns whether that is news.
  bool heard(const std::string& node) { return living_.insert(node).second; }
  // The process of the node has ended, or the node has left.
  void ended(const std::string& node);

  // Returns whether the server decides now. Call it while the server may: the wait begins with the first call.
  bool is_complete(Time now, const Electorate& electorate);
  // When the server decides at the latest, as far as known; none before the wait has begun.
  std::optional<Time> due() const { return due_; }

 private:
  GatherBounds bounds_;
  std::set<std::string> here_, living_, ended_;
  std::optional<Time> since_, due_;
};

}  // namespace ddprun
