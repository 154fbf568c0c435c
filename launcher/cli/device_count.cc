#include "ddprun/launcher/cli/device_count.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sched.h>
#include <string>
#include <string_view>

namespace ddprun {
namespace {

namespace fs = std::filesystem;

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// CUDA ignores an entry that is no device ("-1") and all behind it.
int entries_of(std::string_view list) {
  int count = 0;
  while (!list.empty() && list.front() != '-' && list.front() != ',') {
    ++count;
    const auto comma = list.find(',');
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return count;
}

template <class Predicate>
int count_entries(const fs::path& folder, Predicate wanted) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) count += wanted(entry.path()) ? 1 : 0;
  return count;
}

bool is_intel_render_node(const fs::path& path) {
  if (!path.filename().string().starts_with("renderD")) return false;
  std::string vendor;
  std::ifstream(path / "device/vendor") >> vendor;
  return vendor == "0x8086";
}

}  // namespace

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int visible_gpus(const Environment& environment, const fs::path& root) {
  if (const auto list = environment.get("CUDA_VISIBLE_DEVICES")) return entries_of(*list);
  return count_entries(root / "dev", [](const fs::path& path) {
    const auto name = path.filename().string();
    return name.starts_with("nvidia") && is_number(std::string_view(name).substr(6));
  });
}

int visible_xpus(const Environment& environment, const fs::path& root) {
  if (const auto list = environment.get("ZE_AFFINITY_MASK"); list && !list->empty()) return entries_of(*list);
  return count_entries(root / "sys/class/drm", is_intel_render_node);
}

}  // namespace ddprun
