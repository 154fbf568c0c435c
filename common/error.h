#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "common/errc.h"

namespace ddprun {

// The project's exception type. what() is one sentence with the names and values involved. A value; copies may be used
// on any thread.
class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Errc code() const { return code_; }

 private:
  Errc code_;
};

// The part of make_error() that is the same for all arguments.
Error format_error(Errc code, fmt::string_view format, fmt::format_args arguments);

// throw make_error(Errc::io, "{}: {}", path, reason);
template <class... Args>
Error make_error(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return format_error(code, format, fmt::make_format_args(args...));
}

// "No such file or directory" for ENOENT; thread-safe.
std::string errno_text(int error_number);

}  // namespace ddprun
