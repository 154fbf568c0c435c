#include "common/process_environment.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace ddprun {
namespace {

// The memory in which the kernel has put the entries that the process was started with, and in which it shows them.
std::span<char> initial_environment() {
  constexpr int env_start = 50, env_end = 51;  // the numbers of the fields, see proc_pid_stat(5)
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');  // of field 2, which may contain blanks
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < env_start; ++field) fields >> skipped;
  std::uintptr_t begin = 0, end = 0;
  static_assert(env_end == env_start + 1);
  if (!(fields >> begin >> end) || begin == 0 || end < begin) return {};
  return {reinterpret_cast<char*>(begin), end - begin};
}

void show(std::span<const std::string> entries) {
  const auto shown = initial_environment();
  std::size_t needed = 0;
  for (const auto& entry : entries) needed += entry.size() + 1;
  if (needed > shown.size()) return;
  std::memset(shown.data(), 0, shown.size());  // first, so that nobody sees entries of both
  auto* at = shown.data();
  for (const auto& entry : entries) {
    std::memcpy(at, entry.c_str(), entry.size() + 1);
    at += entry.size() + 1;
  }
}

}  // namespace

void replace_environment(std::span<const std::string> entries) {
  ::clearenv();
  for (const auto& entry : entries) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
  show(entries);  // setenv() has made copies, so nothing refers to this memory any more
}

}  // namespace ddprun
