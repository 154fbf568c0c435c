#include "launcher/agent/node_usage.h"

#include "common/atomic_file.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;

TEST_CASE("the use of a machine is what has changed between two readings") {
  const TempDir proc;
  std::filesystem::create_directory(proc.path() / "net");
  const auto write = [&](const std::string& file, const std::string& text) {
    write_file_atomically(proc.path() / file, text);
  };
  write("stat",
        "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 50 0 25 400 25 0 0 0 0 0\ncpu1 50 0 25 400 25 0 0 0 0 0\nintr 7\n");
  write("net/dev",
        "Inter-| Receive\n face |bytes\n    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n"
        "  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n");
  write("meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n");
  NodeUsageMeter meter(proc.path());
  const std::chrono::steady_clock::time_point start{};
  CHECK_FALSE(meter.read(start + 10s));
  write("stat", "cpu  150 0 100 850 50 0 0 0 0 0\ncpu0 1\ncpu1 1\n");
  write("net/dev", "    lo: 5000 0 0 0 0 0 0 0 5000\n  eth0:3000 0 0 0 0 0 0 0 1500 0\n  eth1: 1000 0 0 0 0 0 0 0 0\n");
  CHECK_FALSE(meter.read(start + 10s + 500ms));  // too soon
  const auto usage = meter.read(start + 12s);
  REQUIRE(usage);
  CHECK(usage->processors == 2);
  CHECK(usage->busy == Approx(2 * 100 / 150.0));
  CHECK(usage->memory == 1000 * 1024);
  CHECK(usage->memory_used == 600 * 1024);
  CHECK(usage->received == 1500);
  CHECK(usage->sent == 500);
}

TEST_CASE("without /proc a machine counts as unused") {
  NodeUsageMeter meter("/nowhere");
  CHECK_FALSE(meter.read(std::chrono::steady_clock::time_point(10s)));
  const auto usage = meter.read(std::chrono::steady_clock::time_point(20s));
  REQUIRE(usage);
  CHECK(usage->busy == 0);
  CHECK(usage->memory == 0);
}
