#include "launcher/cli/device_count.h"

#include <fstream>
#include <string>
#include <string_view>

#include "launcher/placement/affinity.h"
#include "launcher/placement/gpus.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// An entry that is not a device ("-1") ends the list.
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
  return static_cast<int>(current_affinity().size());
}

int visible_gpus(const Environment& environment) {
  return static_cast<int>(discover_gpus(environment).size());
}

int visible_xpus(const Environment& environment, const fs::path& root) {
  if (const auto list = environment.get("ZE_AFFINITY_MASK"); list && !list->empty()) return entries_of(*list);
  return count_entries(root / "sys/class/drm", is_intel_render_node);
}

}  // namespace ddprun
