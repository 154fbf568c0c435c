#pragma once

#include <string>
#include <vector>

namespace ddprun {

// A process that is in an ElasticGroup, or was.
struct ElasticMember {
  std::string name;
  int rank = 0;         // in the group that it was lost from; of a newcomer: in the one that it came to
  std::string process;  // "pid 42 on host b"
  std::string cause{};  // why it is gone: "its process died or its connection broke"; empty of a newcomer
  friend bool operator==(const ElasticMember&, const ElasticMember&) = default;
};

// How the members of a generation differ from those of the group that this process was in before.
struct MembershipChange {
  std::vector<ElasticMember> gone;       // by their rank before
  std::vector<ElasticMember> newcomers;  // by their rank now
};

}  // namespace ddprun
