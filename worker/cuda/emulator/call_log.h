#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ddprun::cuda::emulator {

// Counts the calls of each function, and decides which one fails on request.
class CallLog {
 public:
  // Whether this call is to fail.
  bool add(std::string_view function);

  // function[:n]: the n-th call from now on, the first one where n is left out; "*" is any function, "" none. Counts
  // begin anew.
  void fail(std::string_view specification);
  bool has_failed() const { return has_failed_; }
  // "*": of all functions.
  std::uint64_t count(std::string_view function) const;

 private:
  std::unordered_map<std::string_view, std::uint64_t> counts_;  // the names are literals
  std::uint64_t total_ = 0;
  std::string failing_function_;
  std::uint64_t failing_call_ = 0;
  bool has_failed_ = false;
};

}  // namespace ddprun::cuda::emulator
