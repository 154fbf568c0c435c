#include "launcher/workers/descendants.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/unique_fd.h"

namespace ddprun {
namespace {

struct Stat {
  char state = 'X';
  pid_t parent = -1;
  pid_t group = -1;
};

// Reads "pid (name) S ppid pgrp ...": searches the last ')', since the name may contain blanks and parentheses.
Stat read_stat(const char* pid) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  char text[512];
  const auto got = ::read(file.get(), text, sizeof(text) - 1);
  if (got <= 0) return {};
  text[got] = '\0';
  Stat stat;
  const char* name_end = std::strrchr(text, ')');
  if (!name_end || std::sscanf(name_end + 1, " %c %d %d", &stat.state, &stat.parent, &stat.group) != 3) return {};
  return stat;
}

template <class Condition>
std::vector<pid_t> living_processes(Condition condition) {
  std::vector<pid_t> found;
  DIR* folder = ::opendir("/proc");
  if (!folder) return found;
  while (const auto* entry = ::readdir(folder)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const auto stat = read_stat(entry->d_name);
    if (stat.state != 'Z' && stat.state != 'X' && condition(stat)) found.push_back(std::atoi(entry->d_name));
  }
  ::closedir(folder);
  return found;
}

}  // namespace

bool become_subreaper() {
  return ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

std::vector<pid_t> living_children() {
  const pid_t self = ::getpid();
  return living_processes([self](const Stat& stat) { return stat.parent == self; });
}

std::vector<pid_t> processes_of_group(pid_t group) {
  return living_processes([group](const Stat& stat) { return stat.group == group; });
}

}  // namespace ddprun
