#pragma once

#include <string>
#include <vector>

namespace ddprun {

// A process that is, or was, a member of an ElasticGroup. A plain value.
struct ElasticMember {
  std::string name;
  int rank = 0;          // a lost member's in the group that it was lost from, a newcomer's in the one that it joined
  std::string process;   // "pid 42 on host b"
  std::string cause{};   // why it is gone: "its process died or its connection broke"; empty for a newcomer
  bool may_run = false;  // it showed no sign of life, so its process may still run; one that died or left says so
  friend bool operator==(const ElasticMember&, const ElasticMember&) = default;
};

// The difference between the members of a generation and those of this process's previous group. A plain value.
struct MembershipChange {
  std::vector<ElasticMember> gone;       // by their rank in the previous group
  std::vector<ElasticMember> newcomers;  // by their rank in the current group
};

}  // namespace ddprun
