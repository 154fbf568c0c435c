#include "worker/trainer/commands/free_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace ddprun::trainer {
namespace {

std::optional<std::size_t> available_of_machine() {
  std::ifstream file("/proc/meminfo");
  std::size_t kib = 0;
  for (std::string name, unit; file >> name >> kib && std::getline(file, unit);)
    if (name == "MemAvailable:") return kib * 1024;
  return std::nullopt;
}

std::optional<std::size_t> number_in(const char* path) {
  std::ifstream file(path);
  std::size_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // also for "max"
}

std::optional<std::size_t> available_of_container() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (!limit || !used) return std::nullopt;
  return *limit - std::min(*limit, *used);
}

}  // namespace

std::optional<std::size_t> free_memory() {
  const auto machine = available_of_machine(), container = available_of_container();
  if (machine && container) return std::min(*machine, *container);
  return machine ? machine : container;
}

}  // namespace ddprun::trainer
