#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "common/atomic_file.h"

namespace ddprun::testing {

inline std::vector<boost::json::object> step_records(const std::filesystem::path& metrics) {
  std::vector<boost::json::object> records;
  std::istringstream lines(read_whole_file(metrics));
  for (std::string line; std::getline(lines, line);) {
    auto record = boost::json::parse(line).as_object();
    if (record.contains("step")) records.push_back(std::move(record));
  }
  return records;
}

}  // namespace ddprun::testing
