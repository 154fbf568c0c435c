#pragma once

#include <compare>
#include <dlfcn.h>
#include <string>

#include "common/error.h"

// Versions of NVIDIA's libraries, as they number them. This needs none of their headers, and all of it is inline: the
// worker and the CUDA module check what the loader has found for them. Thread-safe.
namespace ddprun {

struct VersionNumber {
  int major = 0, minor = 0, patch = 0;
  friend auto operator<=>(const VersionNumber&, const VersionNumber&) = default;
};

// 22809 is 2.28.9; before NCCL 2.9 and cuDNN 9 a number has one digit less, 8907 is 8.9.7.
constexpr VersionNumber library_version(int code) {
  if (code < 10000) return {code / 1000, code / 100 % 10, code % 100};
  return {code / 10000, code / 100 % 100, code % 100};
}

inline std::string version_text(const VersionNumber& version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

// A library that was loaded.
struct LoadedLibrary {
  const char* name;      // "cuDNN"
  VersionNumber found;   // the version that it states itself
  const void* function;  // one of its functions, which tells the file from which it was loaded
};

// Throws Errc::unsupported for a library that does not suit. need: a sentence that says which version would.
inline void check_library(const LoadedLibrary& library, bool suits, const std::string& need) {
  if (suits) return;
  Dl_info info{};
  const bool known = ::dladdr(library.function, &info) != 0 && info.dli_fname != nullptr;
  throw make_error(Errc::unsupported, "{} {} was loaded from {}, {}; LD_LIBRARY_PATH says where the loader looks first",
                   library.name, version_text(library.found), known ? info.dli_fname : "an unknown file", need);
}

// Checks libraries that promise compatibility within a major version.
inline void check_same_major(const LoadedLibrary& library, const VersionNumber& compiled) {
  check_library(
      library, library.found.major == compiled.major,
      fmt::format("{}.x is needed: the CUDA module was built with {}", compiled.major, version_text(compiled)));
}

// Checks libraries of which later versions are compatible.
inline void check_at_least(const LoadedLibrary& library, const VersionNumber& least) {
  check_library(library, library.found >= least, version_text(least) + " or newer is needed");
}

}  // namespace ddprun
