#pragma once

// Catch2 in either of its versions (2.13 or 3), and SKIP for both.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace Catch {  // under the names of version 2
inline auto Contains(const std::string& part) {
  return Matchers::ContainsSubstring(part);
}
using Matchers::EndsWith;
using Matchers::Equals;
using Matchers::Matches;
using Matchers::StartsWith;
}  // namespace Catch
#else
#include <cstdio>
#include <cstdlib>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"
// Catch2 2 has no SKIP: prints the reason and exits with the code that ctest counts as skipped. Each test case is a
// process of its own.
#define SKIP(reason)                                          \
  do {                                                        \
    std::puts((std::string("SKIPPED: ") + (reason)).c_str()); \
    std::fflush(stdout);                                      \
    ::ddprun::testing::TempDir::remove_all();                 \
    std::_Exit(4);                                            \
  } while (false)
#endif
