#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace ddprun {

// The names of a job's keys in etcd (ETCD.md), all of which begin with "<prefix>/<run id>/".
//
// A value. Threads: const functions are thread-safe. Errors: none.
class JobKeys {
 public:
  JobKeys(std::string_view prefix, std::string_view run_id) {
    while (prefix.ends_with('/')) prefix.remove_suffix(1);
    root_ = std::string(prefix) + "/" + escaped(run_id) + "/";
  }

  // The prefix of all keys of the job.
  const std::string& all() const { return root_; }
  // The prefix of the keys that every node watches.
  std::string control() const { return root_ + "control/"; }
  std::string leader() const { return root_ + "control/leader"; }
  std::string announcement() const { return root_ + "control/announcement"; }
  std::string state() const { return root_ + "state"; }
  std::string node(std::string_view id) const { return nodes() + std::string(id); }
  // The id of the node that key belongs to; empty if it is not a node's key.
  std::string_view node_of(std::string_view key) const {
    const std::string prefix = nodes();
    return key.starts_with(prefix) ? key.substr(prefix.size()) : std::string_view();
  }

 private:
  std::string nodes() const { return root_ + "nodes/"; }
  // A run id is one component of the path, so slashes in it are escaped.
  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '/' ? "%2F" : c == '%' ? "%25" : std::string(1, c);
    return out;
  }

  std::string root_;
};

}  // namespace ddprun
