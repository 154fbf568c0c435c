#pragma once

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include "common/unique_fd.h"

// Finds processes of this machine in /proc.
namespace ddprun::testing {

// The content of a file in /proc; empty when its process has ended.
inline std::string proc_text(const std::string& pid, const std::string& name) {
  std::string text;
  const UniqueFd file(::open(("/proc/" + pid + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  char block[16384];
  for (ssize_t got = 0; file && (got = ::read(file.get(), block, sizeof(block))) > 0;)
    text.append(block, static_cast<std::size_t>(got));
  return text;
}

// The processes with this variable, NAME=VALUE, in their environment. Zombies have none.
inline std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> found;
  const auto entry = variable + '\0';  // as in /proc/*/environ
  for (const auto& folder : std::filesystem::directory_iterator("/proc")) {
    const auto name = folder.path().filename().string();
    const pid_t pid = std::atoi(name.c_str());
    if (pid > 0 && proc_text(name, "environ").find(entry) != std::string::npos) found.push_back(pid);
  }
  return found;
}

}  // namespace ddprun::testing
