#include "launcher/workers/exec_failure.h"

#include <cerrno>
#include <unistd.h>

#include <fmt/format.h>

#include "common/bounded_file.h"
#include "common/error.h"

namespace ddprun {
namespace {

// The interpreter in a script's "#!INTERPRETER [argument]"; empty when the file is not a script.
std::string interpreter_of(const std::filesystem::path& script) {
  constexpr std::size_t longest_line = 4096;  // the kernel reads 256 bytes
  const auto front = read_front_of_file(script, longest_line);
  const auto line = front.substr(0, front.find('\n'));
  if (!line.starts_with("#!")) return {};
  const auto begin = line.find_first_not_of(" \t", 2);
  if (begin == std::string::npos) return {};
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

std::string missing_file(const std::filesystem::path& executable) {
  if (::access(executable.c_str(), F_OK) != 0) return errno_text(ENOENT);
  const auto interpreter = interpreter_of(executable);
  if (interpreter.ends_with('\r'))
    return fmt::format("its interpreter {} (line 1) does not exist: the file has Windows line endings (CR LF)",
                       interpreter.substr(0, interpreter.size() - 1));
  if (!interpreter.empty()) return fmt::format("its interpreter {} (line 1) does not exist", interpreter);
  return "the dynamic loader that it names does not exist (a binary for another system?)";
}

std::string refused_file(const std::filesystem::path& executable) {
  std::error_code ignored;
  if (std::filesystem::is_directory(executable, ignored)) return "it is a folder";
  if (::access(executable.c_str(), X_OK) != 0) return errno_text(EACCES) + ": it is not executable (chmod +x)";
  const auto interpreter = interpreter_of(executable);
  if (!interpreter.empty() && ::access(interpreter.c_str(), X_OK) != 0)
    return fmt::format("its interpreter {} (line 1) is not executable", interpreter);
  return errno_text(EACCES);
}

std::string explanation(const std::filesystem::path& executable, int error_number) {
  switch (error_number) {
    case ENOENT:
      return missing_file(executable);
    case EACCES:
      return refused_file(executable);
    case ENOEXEC:
      return errno_text(ENOEXEC) + ": neither a binary for this machine nor a script that begins with #!";
    default:
      return errno_text(error_number);
  }
}

}  // namespace

std::string exec_failure_text(const std::filesystem::path& executable, int error_number) {
  return fmt::format("cannot execute {}: {}", executable.string(), explanation(executable, error_number));
}

}  // namespace ddprun
