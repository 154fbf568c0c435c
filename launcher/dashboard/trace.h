#pragma once

#include <string>

#include "launcher/dashboard/job_view.h"

namespace ddprun::dashboard {

// The generations of a job with the phases of its recoveries, its events, loss and rate over time, in the trace event
// format (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), which Perfetto and
// chrome://tracing show, and which the profiler of ddprun-worker writes, too.
std::string trace_json(const JobView& view);

}  // namespace ddprun::dashboard
