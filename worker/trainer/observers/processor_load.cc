#include "worker/trainer/observers/processor_load.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <unistd.h>

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Reads a text such as "0.20 0.18 0.12 3/512 11206": three of 512 tasks run.
std::optional<int> running_tasks(const std::string& loadavg) {
  int running = 0;
  if (std::sscanf(loadavg.c_str(), "%*s %*s %*s %d/", &running) != 1) return std::nullopt;
  return running;
}

// Reads "4711 (any name) R ...": the name may contain anything but ends at the last parenthesis.
bool is_running(std::string_view stat) {
  const auto name_end = stat.rfind(')');
  return name_end != std::string_view::npos && stat.substr(name_end + 1).starts_with(" R");
}

int own_running_tasks(const fs::path& tasks) {
  int running = 0;
  std::error_code ignored;
  for (const auto& task : fs::directory_iterator(tasks, ignored))
    if (is_running(first_line(task.path() / "stat"))) ++running;
  return running;
}

}  // namespace

std::optional<ThreadCount::Load> read_processor_load(const std::string& proc) {
  const auto all = running_tasks(first_line(fs::path(proc) / "loadavg"));
  const auto processors = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (!all || processors < 1) return std::nullopt;
  return ThreadCount::Load{static_cast<int>(processors),
                           std::max(0, *all - own_running_tasks(fs::path(proc) / "self" / "task"))};
}

}  // namespace ddprun::trainer
