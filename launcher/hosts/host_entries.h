#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// A host of the user's list. Group ranks follow the order of the list.
struct HostEntry {
  std::string name;          // as ssh accepts it: "node1", "user@node1", "10.0.0.7", "fd00::7"
  std::optional<int> slots;  // number of workers on it; unset: --nproc_per_node
};

// Parses --hosts: "a:4,user@b:4,c,[fd00::7]:2". The slots of a host that is named twice are added. Throws Errc::usage.
std::vector<HostEntry> parse_hosts(std::string_view text);

// Parses a hostfile: one host per line, "a slots=4" as in Open MPI, "a:4" or "a"; '#' begins a comment. Throws
// Errc::usage with file and line.
std::vector<HostEntry> parse_hostfile(std::string_view text, std::string_view file);

// Returns whether the name, without a user, is this machine's: then its agent is started without ssh.
bool is_this_machine(const HostEntry& host, std::string_view own_name);

}  // namespace ddprun
