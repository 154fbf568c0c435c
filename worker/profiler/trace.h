#pragma once

#include <string>
#include <vector>

#include "worker/profiler/event.h"

// The trace event format of Chrome, which Perfetto opens: a JSON object with "traceEvents", times in microseconds.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
namespace ddprun::profiler {

// Returns a rank's events, ordered by their start, those that contain others first; pid is the rank. They are elements
// of an array, separated by commas, without its brackets.
std::string trace_events(int rank, const std::string& host, std::vector<Event> events);

// Returns the file's text, from those of all ranks.
std::string trace_file(const std::vector<std::string>& events_of_ranks);

}  // namespace ddprun::profiler
