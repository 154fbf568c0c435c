#pragma once

#include <string>
#include <vector>

#include "worker/profiler/summary.h"

namespace ddprun::profiler {

// A profile as a page of text, without ends of lines; the last line is the bottleneck.
std::vector<std::string> report_of(const Summary& summary);

}  // namespace ddprun::profiler
