#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/json.hpp>

// The records that a job has written to metrics.file.
namespace ddprun::testing {

// The bytes of the rank that has most of each.
struct RecordedMemory {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0;
};

struct StepRecords {
  std::vector<double> losses;         // losses of each step
  std::vector<double> samples_per_s;  // rates of each step
  std::vector<double> bytes_sent;     // bytes of each step, sent by rank 0 over the network
  RecordedMemory memory;
};

inline double number_in(const boost::json::object& record, const char* key) {
  const auto* value = record.if_contains(key);
  return value != nullptr ? value->to_number<double>() : 0;
}

inline void add_record(StepRecords& records, const boost::json::object& record) {
  if (record.contains("step")) {
    records.losses.push_back(number_in(record, "loss"));
    records.samples_per_s.push_back(number_in(record, "samples_per_s"));
    records.bytes_sent.push_back(number_in(record, "bytes_sent"));
  } else if (record.contains("rank")) {
    auto& memory = records.memory;
    memory.parameters = std::max(memory.parameters, number_in(record, "parameter_bytes"));
    memory.gradients = std::max(memory.gradients, number_in(record, "gradient_bytes"));
    memory.optimizer = std::max(memory.optimizer, number_in(record, "optimizer_bytes"));
    memory.activations = std::max(memory.activations, number_in(record, "activation_peak_bytes"));
  }
}

inline StepRecords read_records(const std::filesystem::path& metrics) {
  StepRecords records;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) add_record(records, boost::json::parse(line).as_object());
  return records;
}

// Returns the largest relative difference of the first `steps` losses. Throws where there are fewer.
inline double largest_difference(const std::vector<double>& expected, const std::vector<double>& found,
                                 std::size_t steps) {
  if (expected.size() < steps || found.size() < steps)
    throw std::runtime_error("there are " + std::to_string(found.size()) + " losses, and " + std::to_string(steps) +
                             " are compared");
  double largest = 0;
  for (std::size_t i = 0; i < steps; ++i)
    largest = std::max(largest, std::abs(found[i] - expected[i]) / std::abs(expected[i]));
  return largest;
}

}  // namespace ddprun::testing
