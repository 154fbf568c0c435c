#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"

namespace ddprun::doctor {

// A host describes itself. A value; sizes are in bytes.
struct HostFacts {
  std::string name;                         // gethostname(2)
  std::vector<std::string> name_addresses;  // what the name resolves to; empty: nothing
  std::vector<std::string> addresses;       // of its interfaces, loopback left out; the one that ssh came to is first
  std::string version;                      // of ddprun
  int cpus = 0;                             // that this process may use
  std::uint64_t memory = 0;
  std::uint64_t shared_memory = 0;  // of /dev/shm
  std::uint64_t shared_memory_free = 0;
  std::uint64_t descriptors = 0;      // the hard limit of open files
  bool rendezvous_port_free = false;  // 29400
  int gpus = 0;
  std::vector<std::string> libraries;  // of those that ddprun can use, the ones that are installed: NCCL, MPI

  friend bool operator==(const HostFacts&, const HostFacts&) = default;
};

// Those of this host. Takes some milliseconds, and as long as a name server that does not answer.
HostFacts collect_facts(const Environment& environment);

// One line of JSON, and back. from_json() throws Errc::protocol.
std::string to_json(const HostFacts& facts);
HostFacts facts_from_json(const std::string& text);

}  // namespace ddprun::doctor
