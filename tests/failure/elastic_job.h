#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/comm/elastic_group.h"
#include "tests/failure/job.h"

// Shared by the tests of ElasticGroup.
namespace ddprun::failure {

using Members = std::vector<std::string>;

inline ElasticGroup make_elastic(const std::string& backend, int member, std::uint16_t port,
                                 std::chrono::milliseconds timeout = 10min,
                                 std::chrono::milliseconds freeze_bound = 5s) {
  auto options = options_for(backend, member, 1, port);
  options.prefix = "job/";
  options.config.timeout = timeout;
  options.config.freeze_bound = freeze_bound;
  return {backend, options, std::to_string(member)};
}

inline Members members_upto(int count) {
  Members names;
  for (int i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

// Returns "rank 1 of 3, sum 3" for a group that works.
inline std::string works(ProcessGroup& group) {
  std::vector<float> values(5'000, 1.0f);
  group.allreduce(span_of(values), ReduceOp::sum)->wait();
  return "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) + ", sum " +
         std::to_string(static_cast<int>(values.back()));
}
inline std::string expected(int rank, int size) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(size) + ", sum " + std::to_string(size);
}

inline std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return code_and_text(error);
  }
  return "no error";
}

}  // namespace ddprun::failure
