#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/environment.h"

namespace ddprun::doctor {

// A description of a host by itself. A value; sizes are in bytes.
struct HostFacts {
  std::string name;                         // gethostname(2)
  std::vector<std::string> name_addresses;  // addresses that the name resolves to; empty: none
  std::vector<std::string> addresses;       // those of interfaces except loopback; the one that ssh came to is first
  std::string version;                      // version of ddprun
  int cpus = 0;                             // number that this process may use
  std::uint64_t memory = 0;
  std::uint64_t shared_memory = 0;  // size of /dev/shm
  std::uint64_t shared_memory_free = 0;
  std::uint64_t descriptors = 0;      // the hard limit of open files
  bool rendezvous_port_free = false;  // 29400
  int gpus = 0;
  std::vector<std::string> libraries;  // those of NCCL and MPI that are installed

  friend bool operator==(const HostFacts&, const HostFacts&) = default;
};

// Collects this host's facts. Takes some milliseconds, or the time of a name server that does not answer.
HostFacts collect_facts(const Environment& environment);

// One line of JSON, and the inverse, which throws Errc::protocol.
std::string to_json(const HostFacts& facts);
HostFacts facts_from_json(const std::string& text);

}  // namespace ddprun::doctor
