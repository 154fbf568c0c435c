#include "common/version.h"

#include <algorithm>

#include <fmt/core.h>
#include <spdlog/version.h>

namespace ddprun {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

std::string_view project_version() {
  return DDPRUN_VERSION;
}

std::string version_of_number(int number, int minor_unit, int major_unit) {
  return fmt::format("{}.{}.{}", number / major_unit, number % major_unit / minor_unit, number % minor_unit);
}

std::string version_text(std::string_view program, std::vector<LibraryVersion> libraries) {
  libraries.push_back({"fmt", version_of_number(FMT_VERSION, 100, 10'000)});
  libraries.push_back({"spdlog", version_of_number(SPDLOG_VERSION, 100, 10'000)});
  std::sort(libraries.begin(), libraries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::string list;
  for (const auto& library : libraries)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", library.name, library.version);
  return fmt::format("{} {}\n{}\nbuilt by {}\n", program, project_version(), list, compiler());
}

}  // namespace ddprun
