#include "ddprun/worker/cuda/emulator/call_log.h"

#include <charconv>

namespace ddprun::cuda::emulator {

bool CallLog::add(std::string_view function) {
  ++total_;
  const std::uint64_t calls = ++counts_[function];
  const bool fails = failing_function_ == "*"        ? total_ == failing_call_
                     : failing_function_ == function ? calls == failing_call_
                                                     : false;
  has_failed_ = has_failed_ || fails;
  return fails;
}

void CallLog::fail(std::string_view specification) {
  *this = CallLog();
  const auto colon = specification.find(':');
  failing_function_ = specification.substr(0, colon);
  failing_call_ = 1;
  if (colon == specification.npos) return;
  const std::string_view n = specification.substr(colon + 1);
  std::from_chars(n.data(), n.data() + n.size(), failing_call_);
}

std::uint64_t CallLog::count(std::string_view function) const {
  if (function == "*") return total_;
  const auto found = counts_.find(function);
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace ddprun::cuda::emulator
