#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "tests/support/catch.h"

namespace ddprun::testing {

// The contents of a trace.
struct TraceContents {
  std::set<std::int64_t> processes;
  std::map<std::string, int> categories;                    // number of events of each
  std::map<std::int64_t, std::map<std::string, int>> rows;  // for each process the number of events by the row's name
};

// Requires of a trace in Chrome's format its fields with their types, and in each row that an event lies within or
// after the one before it, in the order of their starts.
inline TraceContents check_trace(const boost::json::value& trace) {
  using Row = std::pair<std::int64_t, std::int64_t>;
  TraceContents contents;
  std::map<Row, std::vector<std::pair<double, double>>> open;
  std::map<Row, std::string> names;
  std::map<std::int64_t, double> last;
  for (const auto& each : trace.at("traceEvents").as_array()) {
    const auto& event = each.as_object();
    const Row row{event.at("pid").as_int64(), event.at("tid").as_int64()};
    const std::string phase = event.at("ph").as_string().c_str();
    REQUIRE_FALSE(event.at("name").as_string().empty());
    contents.processes.insert(row.first);
    if (phase == "M") {
      REQUIRE(event.at("args").at("name").is_string());
      if (event.at("name").as_string() != "thread_name") continue;
      names[row] = event.at("args").at("name").as_string().c_str();
      contents.rows[row.first][names[row]];
      continue;
    }
    REQUIRE(phase == "X");
    ++contents.categories[event.at("cat").as_string().c_str()];
    ++contents.rows[row.first][names.at(row)];
    const double from = event.at("ts").to_number<double>(), duration = event.at("dur").to_number<double>();
    REQUIRE(from >= last[row.first]);
    REQUIRE(duration >= 0);
    last[row.first] = from;
    constexpr double rounding = 1e-4;  // microseconds
    auto& stack = open[row];
    while (!stack.empty() && stack.back().second <= from + rounding) stack.pop_back();
    if (!stack.empty()) REQUIRE(from + duration <= stack.back().second + rounding);
    stack.emplace_back(from, from + duration);
  }
  return contents;
}

}  // namespace ddprun::testing
