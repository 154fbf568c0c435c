#include "worker/comm/bootstrap/host_evidence.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <unistd.h>

#include <fmt/core.h>

namespace ddprun::comm {
namespace {

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string namespace_of(const char* kind) {
  std::error_code ignored;
  return std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind, ignored).string();
}

}  // namespace

std::string host_evidence() {
  return fmt::format("{} {} {}", boot_id(), namespace_of("pid"), ::geteuid());
}

std::string network_evidence() {
  return fmt::format("{} {}", boot_id(), namespace_of("net"));
}

}  // namespace ddprun::comm
