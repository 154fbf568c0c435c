#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// A host that the user named, in the order of the list: group ranks follow it.
struct HostEntry {
  std::string name;          // as ssh takes it: "node1", "user@node1", "10.0.0.7", "fd00::7"
  std::optional<int> slots;  // workers there; none: as --nproc_per_node says
};

// --hosts: "a:4,user@b:4,c,[fd00::7]:2". One that is named again adds its slots. Throws Errc::usage.
std::vector<HostEntry> parse_hosts(std::string_view text);

// A hostfile: one host a line, "a slots=4" as Open MPI has it, "a:4" or "a"; '#' begins a comment. Throws Errc::usage
// with file and line.
std::vector<HostEntry> parse_hostfile(std::string_view text, std::string_view file);

// Named as this machine is, without a user: it can be started without ssh.
bool is_this_machine(const HostEntry& host, std::string_view own_name);

}  // namespace ddprun
