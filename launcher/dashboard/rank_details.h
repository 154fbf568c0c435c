#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/group_progress.h"
#include "launcher/dashboard/job_view.h"

namespace ddprun::dashboard {

// The data that an agent has about a worker of its node beyond the view.
struct RankEvidence {
  std::optional<std::string> out, err;  // the end of its output; nullopt: it does not pass through the agent
  std::vector<std::pair<std::string, std::string>> process;  // readable names and values; empty: it has ended
};

// All data about a rank, as one line of JSON:
//   {"rank": 3, "host": "b", "started": ms, "note": line, "process": [[name, value], ...], "out": text|null,
//    "err": text|null, "groups": [{"group", "place", "operation", "inside", "since_ms"}, ...]}
// evidence is nullopt for a rank of another node; "note" then says where the data can be found. An unknown rank has
// only "note".
std::string rank_details(const JobView& view, int rank, const std::vector<GroupProgress>& groups,
                         const std::optional<RankEvidence>& evidence);

}  // namespace ddprun::dashboard
