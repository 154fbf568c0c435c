#pragma once

#include <fstream>

#include "tests/process/nodes.h"
#include "tests/process/training.h"
#include "tests/support/catch.h"
#include "tests/support/netns.h"

// Agents on separate hosts, which share only the file system.
namespace ddprun::testing {

inline void need_hosts() {
  if (const auto why = NetnsHosts::why_not(); !why.empty()) SKIP(why);
}

struct Hosts {
  explicit Hosts(int count) : net(count) {}

  NetnsHosts net;
  Marker marker;
  TempDir folder;

  std::string endpoint() const { return net.address(0) + ":29400"; }

  // Returns the command line with the prefix that runs it on a host.
  static Words behind(Words enter, const Words& words) {
    enter.insert(enter.end(), words.begin(), words.end());
    return enter;
  }
  // A node with one worker, which prints its environment in each round and exits when the test creates a file.
  Node start(int host, const Words& options) const { return start(net.enter(host), options); }
  Node start(const Words& enter, const Words& options) const {
    return {behind(enter, command(options, {"env", "wait-file=" + done()})), marker.variables()};
  }
  Words meeting(const Words& more) const {
    Words words{"--nproc_per_node=1", "--shutdown_timeout=5", "--rdzv_endpoint=" + endpoint()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void finish() const { std::ofstream(done()).put('\n'); }

 private:
  std::string done() const { return (folder / "done").string(); }
};

}  // namespace ddprun::testing
