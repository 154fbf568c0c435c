#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace ddprun {

// What kind of thing went wrong; callers branch on this, people read what().
enum class Errc {
  usage,            // the user's mistake: a flag, a file, a value. Exit code 2.
  io,               // a file or device: missing, torn, full
  timeout,          // a deadline passed; the message says what was waited for and who was missing
  unreachable,      // nobody answers at an address
  connection_lost,  // an established connection ended
  protocol,         // the other side sent what the protocol does not allow
  peer_lost,        // another rank or node died, froze or was cut off
  mismatch,         // ranks disagree (operation, size, type, shape)
  aborted,          // stopped on purpose by this process or a verdict
  unsupported,      // a valid wish that this build or version cannot fulfil
  internal,         // a broken invariant: our bug
};

// The one exception type of the project. what() is a full sentence with the names and values involved.
class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Errc code() const { return code_; }

 private:
  Errc code_;
};

// throw make_error(Errc::io, "{}: {}", path, reason);
template <class... Args>
Error make_error(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// "No such file or directory" for ENOENT; thread-safe.
std::string errno_text(int error_number);

}  // namespace ddprun
