#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/dashboard/job_view.h"

namespace ddprun::dashboard {

// The view of a job as lines of text for a terminal, with curves and the ranks as characters: the screen of ddprun top.
// json is a snapshot (view_json.h). Text from the job is printable, lines are cut to the columns. Throws Errc::protocol
// for a text that is no snapshot.
std::string screen_text(std::string_view json, int columns, int rows);

// One line for the end of a run: "loss █▅▃▁ 0.0312 after 630 steps, 0.0301 to 2.31". It is empty if too few steps have
// been seen for a curve.
std::string loss_text(const JobView& view, int columns);

// A curve of eight levels, "▁▃█": each column has the mean of the values that fall into it. It is empty without
// values.
std::string curve_text(const std::vector<double>& values, std::size_t columns);

}  // namespace ddprun::dashboard
