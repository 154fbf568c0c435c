#pragma once

#include <string>

#include "launcher/dashboard/job_model.h"

// The messages to a page, one line of JSON each:
//   {"v": version, "full": true|false, "now": ms, "job": {...}, "points": [[ms, step, loss, samples/s], ...],
//    "evaluations": [[step, loss, accuracy], ...],
//    "ranks": [[rank, node, local rank, pid, state, lateness in us, data, compute, communication(, replacements)],
//    ...], "nodes": [...], "generations": [...], "events": [{"ms", "kind", "text", "step"}, ...], "collectives":
//    [[group, operation, bytes, count, seconds, median, bus bandwidth, slowest rank, wait], ...], "waits": [line, ...]}
// A message that is not full has the points, evaluations and events that are new, the ranks that have changed, and
// nodes, generations, or collectives and waits if any of them has changed. A number that is not known is null.
namespace ddprun::dashboard {

std::string snapshot_json(const JobModel& model);

// The changes since the client's version; the snapshot if that version is too old, or not of this model.
std::string changes_json(const JobModel& model, Version since);

}  // namespace ddprun::dashboard
