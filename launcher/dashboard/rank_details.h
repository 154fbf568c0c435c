#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/launcher/control/group_progress.h"
#include "ddprun/launcher/dashboard/job_view.h"

namespace ddprun::dashboard {

// What an agent knows of a worker of its node beyond the view.
struct RankEvidence {
  std::optional<std::string> out, err;  // the end of what it has written; none: it does not pass through the agent
  std::vector<std::pair<std::string, std::string>> process;  // name and value, as people read them; empty: it has ended
};

// Everything that is known of a rank, as one line of JSON:
//   {"rank": 3, "host": "b", "started": ms, "note": line, "process": [[name, value], ...], "out": text|null,
//    "err": text|null, "groups": [{"group", "place", "operation", "inside", "since_ms"}, ...]}
// evidence: none for a rank of another node, of which "note" then says where it is to be found. An unknown rank has a
// "note" alone.
std::string rank_details(const JobView& view, int rank, const std::vector<GroupProgress>& groups,
                         const std::optional<RankEvidence>& evidence);

}  // namespace ddprun::dashboard
