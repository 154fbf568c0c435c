#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddprun::cuda::emulator {

// Counts the calls of each function on each device, and decides which one fails on request. A function in a request may
// be "function@device", called by threads whose device that is, and "*" is any function.
class CallLog {
 public:
  // Returns whether this call is to fail. device: the calling thread's own.
  bool add(std::string_view function, int device);

  // function[@device][:n[:code]]: the n-th call from now on, the first one where n is left out; "*" is any function, ""
  // none. The call returns the code, or the function's usual one. Counts begin anew.
  void fail(std::string_view specification);
  std::optional<int> failing_code() const { return failing_code_; }
  bool has_failed() const { return has_failed_; }
  std::uint64_t count(std::string_view function) const;

 private:
  std::unordered_map<std::string_view, std::vector<std::uint64_t>> counts_;  // by device; the names are literals
  std::uint64_t selected_ = 0;                                               // calls of failing_function_
  std::string failing_function_;
  std::uint64_t failing_call_ = 0;
  std::optional<int> failing_code_;
  bool has_failed_ = false;
};

}  // namespace ddprun::cuda::emulator
