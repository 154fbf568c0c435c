#include "launcher/cli/device_count.h"

#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
namespace fs = std::filesystem;

namespace {

void add_file(const fs::path& path, const std::string& text = "") {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

Environment variable(const std::string& name, const std::string& value) {
  Environment environment;
  environment.set(name, value);
  return environment;
}

}  // namespace

TEST_CASE("XPUs are Intel's render nodes, or the entries of ZE_AFFINITY_MASK") {
  const testing::TempDir root;
  CHECK(visible_xpus({}, root.path()) == 0);
  add_file(root / "sys/class/drm/renderD128/device/vendor", "0x8086\n");
  add_file(root / "sys/class/drm/renderD129/device/vendor", "0x10de\n");
  add_file(root / "sys/class/drm/card0/device/vendor", "0x8086\n");
  CHECK(visible_xpus({}, root.path()) == 1);
  CHECK(visible_xpus(variable("ZE_AFFINITY_MASK", "0,1"), root.path()) == 2);
}
