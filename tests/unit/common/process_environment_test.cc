#include "common/process_environment.h"

#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/processes.h"

using namespace ddprun;

namespace {

// Returns what a child of this process finds out once it has another environment.
template <class Check>
bool in_child(const std::vector<std::string>& entries, Check check) {
  const pid_t child = ::fork();
  if (child == 0) {
    replace_environment(entries);
    ::_exit(check() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string shown() {
  return testing::proc_text("self", "environ");
}

}  // namespace

TEST_CASE("a replaced environment is what getenv returns and what others see of the process") {
  REQUIRE(std::getenv("PATH") != nullptr);
  CHECK(in_child({"RANK=3", "EMPTY=", "TWO=a=b"}, [] {
    using namespace std::string_literals;
    const auto expected = "RANK=3\0EMPTY=\0TWO=a=b\0"s;
    return ::getenv("RANK") == "3"s && ::getenv("EMPTY") == ""s && ::getenv("TWO") == "a=b"s && !::getenv("PATH") &&
           shown().starts_with(expected) && shown().find_first_not_of('\0', expected.size()) == std::string::npos;
  }));
}

TEST_CASE("an environment that is larger than the initial one holds, but others see the initial one") {
  const auto before = shown();
  const std::string large(before.size() + 1, 'x');
  CHECK(in_child({"LARGE=" + large}, [&] { return ::getenv("LARGE") == large && shown() == before; }));
}
