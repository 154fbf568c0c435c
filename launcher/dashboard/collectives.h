#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/control/group_progress.h"
#include "launcher/dashboard/job_view.h"

// The records of collectives that ranks of process groups publish, as seen by those who watch a job. Pure.
namespace ddprun::dashboard {

// Returns a process's rank in the job; -1 if it is not known.
using RankOf = std::function<int(const RankRecord&)>;

// The groups of which a rank has reported something in the last seconds, without those that ranks have left for the
// next generation; all groups if no rank has reported anything.
std::vector<GroupProgress> living_groups(std::vector<GroupProgress> groups);

// A row for each kind and size of the groups, those with the longest sum of times first; at most 12.
//
// The time of a collective at a rank includes the time that it waits for others. So the time for moving the bytes is
// the shortest of the ranks' medians, from which the bus bandwidth is computed (as nccl-tests define it, so that it
// compares with a link's); and the rank with the shortest sum is the one for which the others wait.
std::vector<CollectiveView> collectives_of(const std::vector<GroupProgress>& groups, const RankOf& rank_of);

// A line for each group in which ranks wait: the operation, the ranks that they wait for, and the time.
std::vector<std::string> waits_of(const std::vector<GroupProgress>& groups);

// The state of a process in one of its groups.
struct GroupPlace {
  std::string group;
  std::string place;      // a further name of the rank, such as its place in a mesh
  std::string operation;  // the collective it is in, or else its last one; empty: none yet
  bool inside = false;
  std::chrono::milliseconds since{-1};  // since it entered or ended the operation; less than 0: not known
};
std::vector<GroupPlace> places_of(const std::vector<GroupProgress>& groups, const std::string& host, std::int64_t pid);

}  // namespace ddprun::dashboard
