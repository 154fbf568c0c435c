#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun::dashboard {

// The view of a job as lines of text for a terminal, with curves and the ranks as characters: what ddprun top shows.
// json: a snapshot (view_json.h). Text from the job is printable, lines are cut to the columns. Throws Errc::protocol
// for a text that is no snapshot.
std::string screen_text(std::string_view json, int columns, int rows);

// A curve of eight levels, "▁▃█": the values, of which each column has the mean of those that fall into it. Empty
// without values.
std::string curve_text(const std::vector<double>& values, std::size_t columns);

}  // namespace ddprun::dashboard
