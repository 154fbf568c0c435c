#include "tests/bench/cpu_limit.h"

#include <fstream>
#include <string>
#include <system_error>
#include <unistd.h>

#include <fmt/core.h>

#include "common/error.h"

namespace ddprun::bench {
namespace {

constexpr int period_us = 10'000;

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw make_error(Errc::io, "a control group that limits the processor cannot be made: {}", path.string());
}

}  // namespace

CpuLimit::CpuLimit(double cores) {
  const std::filesystem::path root = "/sys/fs/cgroup";
  const bool is_first_version = std::filesystem::exists(root / "cpu" / "cpu.cfs_quota_us");
  folder_ = (is_first_version ? root / "cpu" : root) / fmt::format("ddprun-bench-{}", ::getpid());
  const int quota_us = static_cast<int>(cores * period_us);
  std::error_code error;
  std::filesystem::create_directory(folder_, error);
  if (error) throw make_error(Errc::io, "the control group {} cannot be made: {}", folder_.string(), error.message());
  try {
    if (is_first_version) {
      write(folder_ / "cpu.cfs_period_us", std::to_string(period_us));
      write(folder_ / "cpu.cfs_quota_us", std::to_string(quota_us));
    } else {
      write(folder_ / "cpu.max", fmt::format("{} {}", quota_us, period_us));
    }
  } catch (...) {
    std::filesystem::remove(folder_, error);
    throw;
  }
}

CpuLimit::~CpuLimit() {
  std::error_code absent;
  std::filesystem::remove(folder_, absent);  // its files are the kernel's
}

}  // namespace ddprun::bench
