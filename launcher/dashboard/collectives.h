#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ddprun/launcher/control/group_progress.h"
#include "ddprun/launcher/dashboard/job_view.h"

// What the ranks of process groups publish of their collectives, as those who watch a job see it. Pure.
namespace ddprun::dashboard {

// The rank in the job of a process; -1: not known.
using RankOf = std::function<int(const RankRecord&)>;

// Those of which a rank has told something in the last seconds, without those that ranks have given up for the next
// generation; all if no rank has told anything.
std::vector<GroupProgress> living_groups(std::vector<GroupProgress> groups);

// A row for each kind and size of the groups, those with the longest sum of times first; at most 12.
//
// The time of a collective at a rank includes that it waits for others. So what moves the bytes is the shortest of the
// ranks' medians, of which the bus bandwidth is (as nccl-tests define it, so that it compares with a link's); and the
// rank with the shortest sum is the one for which the others wait.
std::vector<CollectiveView> collectives_of(const std::vector<GroupProgress>& groups, const RankOf& rank_of);

// A line for each group in which ranks wait: which operation, for whom, for how long.
std::vector<std::string> waits_of(const std::vector<GroupProgress>& groups);

// Where a process is in one of its groups.
struct GroupPlace {
  std::string group;
  std::string place;      // what the rank is called besides, such as its place in a mesh
  std::string operation;  // the collective it is in, or else its last one; empty: none yet
  bool inside = false;
  std::chrono::milliseconds since{-1};  // it is in it, or it ended; less than 0: not known
};
std::vector<GroupPlace> places_of(const std::vector<GroupProgress>& groups, const std::string& host, std::int64_t pid);

}  // namespace ddprun::dashboard
